package main

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is what can be watched, by the name of its resource.
type kind struct {
	new   func() client.Object
	group func(*runtime.Scheme) error
	gvk   schema.GroupVersionKind
	scope meta.RESTScope
}

// kinds are all that can be watched.
var kinds = map[string]kind{
	"configmaps":      core("ConfigMap", func() client.Object { return &corev1.ConfigMap{} }),
	"secrets":         core("Secret", func() client.Object { return &corev1.Secret{} }),
	"services":        core("Service", func() client.Object { return &corev1.Service{} }),
	"serviceaccounts": core("ServiceAccount", func() client.Object { return &corev1.ServiceAccount{} }),
	"pods":            core("Pod", func() client.Object { return &corev1.Pod{} }),
	"events":          core("Event", func() client.Object { return &corev1.Event{} }),
	"namespaces": {
		func() client.Object { return &corev1.Namespace{} }, corev1.AddToScheme,
		corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot,
	},
	"deployments": {
		func() client.Object { return &appsv1.Deployment{} }, appsv1.AddToScheme,
		appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace,
	},
	"roles": {
		func() client.Object { return &rbacv1.Role{} }, rbacv1.AddToScheme,
		rbacv1.SchemeGroupVersion.WithKind("Role"), meta.RESTScopeNamespace,
	},
	"rolebindings": {
		func() client.Object { return &rbacv1.RoleBinding{} }, rbacv1.AddToScheme,
		rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), meta.RESTScopeNamespace,
	},
}

func core(name string, made func() client.Object) kind {
	return kind{made, corev1.AddToScheme, corev1.SchemeGroupVersion.WithKind(name), meta.RESTScopeNamespace}
}

// named returns the kinds of a list of their names.
func named(list string) ([]string, error) {
	names := strings.Split(list, ",")
	for _, name := range names {
		if _, ok := kinds[name]; !ok {
			return nil, fmt.Errorf("-kinds has no such kind: %q", name)
		}
	}
	return names, nil
}

// schemeOf returns a scheme with the API groups of these kinds, and a mapper of these kinds only.
func schemeOf(names []string) (*runtime.Scheme, meta.RESTMapper, error) {
	scheme := runtime.NewScheme()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	for _, name := range names {
		if err := kinds[name].group(scheme); err != nil {
			return nil, nil, err
		}
		mapper.Add(kinds[name].gvk, kinds[name].scope)
	}
	return scheme, mapper, nil
}
