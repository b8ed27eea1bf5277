"""The controller of a training job and the roles' side of its protocol: event log, lease, service, membership."""
