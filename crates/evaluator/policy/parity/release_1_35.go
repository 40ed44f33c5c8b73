//go:build !k8s1.37

package main

import (
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

type authorizerOfPolicies = authorizer.Authorizer

// newCompiler starts with no variables. The server's own template keeps the variables of other policies, in random order.
func newCompiler() *cel.CompositedCompiler {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	template, err := cel.NewCompositionEnv(cel.VariablesTypeName, base)
	if err != nil {
		log.Fatal(err)
	}
	return cel.NewCompositedCompilerFromTemplate(template)
}

func newValidator(validations cel.ConditionEvaluator, conditions matchconditions.Matcher, annotations, messages cel.ConditionEvaluator, failurePolicy *admissionv1.FailurePolicyType) validating.Validator {
	return validating.NewValidator(validations, conditions, annotations, messages, failurePolicy)
}

func validateEmbedded(object map[string]any, structural *schema.Structural) field.ErrorList {
	return objectmeta.Validate(nil, object, structural, false)
}
