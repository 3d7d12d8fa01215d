"""Speed as ratios: each figure is compared with a floor that is measured in the same run."""
