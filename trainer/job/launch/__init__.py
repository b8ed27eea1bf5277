"""The processes of a training job: how they are made, started and watched on one machine, or suspended on a cluster (`cluster/`)."""
