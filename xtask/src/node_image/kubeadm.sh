#!/bin/sh
# What kind calls as `kubeadm` in a node. The real one, beside it, makes PKI, kubeconfigs and flags; what it would
# have a kubelet do, entrypoint does.
set -eu

real=/kind/bin/kubeadm
config=/kind/kubeadm.conf
conf=/etc/kubernetes

case ${1:-} in
init) ;;
join)
    echo "this node image has a control plane only: a cluster of it has one node, and no worker can join" >&2
    exit 1
    ;;
*) exec "$real" "$@" ;;
esac

phase() {
    "$real" init phase "$@" --config "$config"
}

phase certs all
for who in admin super-admin controller-manager; do
    phase kubeconfig "$who"
done
# It is beside the API server. The node's address, which kubeadm wrote down, may be another node's after a restart.
sed -i 's|server: https://.*|server: https://127.0.0.1:6443|' "$conf/controller-manager.conf"
phase etcd local
phase control-plane apiserver
phase control-plane controller-manager
touch "$conf/ready-to-run"

admin="kubectl --kubeconfig $conf/super-admin.conf --request-timeout 5s"
# Counted in seconds: one that accepts connections and says nothing takes 5 s for each question.
deadline=$(($(date +%s) + 120))
until $admin get --raw /readyz >/dev/null 2>&1; do
    if [ "$(date +%s)" -ge "$deadline" ]; then
        echo "the API server did not become ready; its last words:" >&2
        tail -n 20 /var/log/etcd.log /var/log/kube-apiserver.log >&2
        exit 1
    fi
    sleep 0.2
done

# What kubeadm's own last phases would do: make the user in admin.conf an administrator.
$admin create clusterrolebinding kubeadm:cluster-admins --clusterrole cluster-admin --group kubeadm:cluster-admins
