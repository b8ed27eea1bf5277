"""One fragment computed: what is asked, what comes back, the computation, and the step it is at."""
