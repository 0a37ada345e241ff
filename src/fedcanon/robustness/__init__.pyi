# What fedcanon.robustness offers, by where it lives.
