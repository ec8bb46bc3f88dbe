minikube start --cpus=96 --extra-config=kubelet.cpu-manager-policy=static \
  --extra-config=kubelet.topology-manager-policy=single-numa-node --extra-config=kubelet.kube-reserved=cpu=1
