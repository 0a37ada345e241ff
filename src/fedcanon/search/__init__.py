"""Many runs that belong together: sweeps over settings, and paths over the penalty's κ."""
