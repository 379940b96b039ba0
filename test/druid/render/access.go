package render

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// ServiceAccount sets the account that the members run under.
func ServiceAccount(sa *corev1.ServiceAccount, etcd *api.Etcd) {
	sa.Labels = labels(etcd, ComponentServiceAccount, etcd.Name)
	sa.OwnerReferences = owners(etcd)
	sa.AutomountServiceAccountToken = ptr.To(true)
}

// Role sets what the members may do: renew leases, look at pods and at their StatefulSet.
func Role(role *rbacv1.Role, etcd *api.Etcd) {
	role.Labels = labels(etcd, ComponentRole, labelValue(etcd.RoleName()))
	role.OwnerReferences = owners(etcd)
	role.Rules = []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "patch", "update", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: []string{"get", "list", "patch", "update", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
	}
}

// RoleBinding gives Role to ServiceAccount.
func RoleBinding(binding *rbacv1.RoleBinding, etcd *api.Etcd) {
	binding.Labels = labels(etcd, ComponentRoleBinding, labelValue(etcd.RoleName()))
	binding.OwnerReferences = owners(etcd)
	binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: etcd.RoleName()}
	binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: etcd.Name, Namespace: etcd.Namespace}}
}

// labelValue replaces what a name may have and a label value may not.
func labelValue(name string) string { return strings.ReplaceAll(name, ":", "-") }
