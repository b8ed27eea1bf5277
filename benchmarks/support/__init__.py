"""What several measurements share: logs, fleets of models, catalogs, rivals, and the loop that times sides in turn."""
