# @mhz@ MHz, the clock the plan assumed; one clock, synchronous active-high rst.
create_clock -name clk -period @period_ns@ [get_ports clk]
