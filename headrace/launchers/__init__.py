"""What starts a training job on other machines: the manifests of a cluster, and the script of a TPU slice; pure."""
