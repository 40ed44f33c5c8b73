package main

import (
	"log"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	registrationv1 "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
)

// admitPolicy sets the defaults of a policy and checks it as the API server does at creation.
func admitPolicy(policy *admissionv1.ValidatingAdmissionPolicy, check bool) field.ErrorList {
	registrationv1.SetObjectDefaults_ValidatingAdmissionPolicy(policy)
	if !check {
		return nil
	}
	internal := &admissionregistration.ValidatingAdmissionPolicy{}
	if err := registrationv1.Convert_v1_ValidatingAdmissionPolicy_To_admissionregistration_ValidatingAdmissionPolicy(policy, internal, nil); err != nil {
		log.Fatal(err)
	}
	return validation.ValidateValidatingAdmissionPolicy(internal)
}

// admitBinding sets the defaults of a binding and checks it as the API server does at creation.
func admitBinding(binding *admissionv1.ValidatingAdmissionPolicyBinding, check bool) field.ErrorList {
	registrationv1.SetObjectDefaults_ValidatingAdmissionPolicyBinding(binding)
	if !check {
		return nil
	}
	internal := &admissionregistration.ValidatingAdmissionPolicyBinding{}
	if err := registrationv1.Convert_v1_ValidatingAdmissionPolicyBinding_To_admissionregistration_ValidatingAdmissionPolicyBinding(binding, internal, nil); err != nil {
		log.Fatal(err)
	}
	return validation.ValidateValidatingAdmissionPolicyBinding(internal)
}
