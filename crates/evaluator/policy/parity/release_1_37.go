//go:build k8s1.37

package main

import (
	"context"
	"log"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

type authorizerOfPolicies = authorizer.UnconditionalAuthorizer

func newCompiler() *cel.CompositedCompiler {
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		log.Fatal(err)
	}
	return compiler
}

func newValidator(validations cel.ConditionEvaluator, conditions matchconditions.Matcher, annotations, messages cel.ConditionEvaluator, failurePolicy *admissionv1.FailurePolicyType) validating.Validator {
	return validating.NewValidator(validations, conditions, annotations, messages, failurePolicy, nil)
}

func validateEmbedded(object map[string]any, structural *schema.Structural) field.ErrorList {
	return objectmeta.Validate(context.Background(), nil, object, structural, false)
}
