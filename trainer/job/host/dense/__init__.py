"""The dense part of a host: its gradients are summed over all hosts, flat or in two legs, while the backward pass runs."""
