"""A job whose readers and hosts are pods of a Kubernetes cluster: they are suspended while the controller wants none."""
