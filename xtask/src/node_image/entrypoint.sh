#!/bin/sh
# The first process of a node: runs etcd, kube-apiserver and kube-controller-manager as kubeadm wrote them down.
#
# A node of kind has systemd, a kubelet and containerd here, and the control plane runs in pods. This one runs
# it as plain processes with the same flags and the same PKI: an API server needs no more, and everything can be
# made without an image registry. There is no kubelet, so no pod ever runs.
set -u

conf=/etc/kubernetes

# The engine stops a node with SIGTERM. Once the first process has ended the kernel ends the others. The code says that
# it did not end by itself, or the engine would not start the node again after it was itself started again.
stop() {
    killall -q -TERM kube-controller-manager kube-apiserver etcd
    sleep 0.5
    exit 143
}
trap stop TERM INT

# Docker may give a node another address when it is started again, but kubeadm wrote the first one into the flags.
# The certificate keeps the old one, which is no harm: clients come by 127.0.0.1 or by name.
follow_address() {
    now=$(hostname -i | cut -d ' ' -f 1)
    then=$(cat /kind/address 2>/dev/null)
    if [ -n "$then" ] && [ "$then" != "$now" ]; then
        sed -i "s/$(echo "$then" | sed 's/[.]/\\./g')/$now/g" "$conf"/manifests/*.yaml
    fi
    echo "$now" >/kind/address
}

# Runs a command with the flags of its static pod, again whenever it ends, as a kubelet would.
keep() {
    command=$1
    shift
    while :; do
        # Split into words on purpose: one flag on each line, and none that kubeadm writes has a space.
        # shellcheck disable=SC2046
        "$command" $(sed -n 's/^    - --/--/p' "$conf/manifests/$command.yaml") "$@" >>"/var/log/$command.log" 2>&1
        echo "$command ended with $?: starting it again"
        sleep 1
    done
}

follow_address
# The words kind waits for in a node's log.
echo "Reached target Multi-User System."

# kubeadm, the wrapper beside this file, makes this file when everything is written.
until [ -e "$conf/ready-to-run" ]; do
    sleep 0.1 &
    wait $!
done

mkdir -p /var/log
# A test cluster's data need not survive a power cut.
keep etcd --unsafe-no-fsync &
keep kube-apiserver &
keep kube-controller-manager --leader-elect=false &
while :; do
    # Returns early for a signal; the loop is for a child that ends.
    wait
    sleep 1
done
