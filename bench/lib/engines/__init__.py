"""Parts of the claim that engines that share multipliers take the clocks and the area that models say."""
