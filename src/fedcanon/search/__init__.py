"""Many runs for one question: sweeps over settings, and paths over the penalty's κ."""
