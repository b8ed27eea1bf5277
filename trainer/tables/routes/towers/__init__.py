"""The tower transform: tables divided among towers of hosts, so that bags are combined before they leave a host."""
