# vivado -mode batch -source build.tcl: synthesizes and implements the top module out of context, and reports.
set top @top@
if {[info exists ::env(@variable@)]} { set top $::env(@variable@) }
create_project $top project -part @part@ -force
@sources@
add_files -fileset constrs_1 -norecurse clock.xdc
set_property top $top [current_fileset]
update_compile_order -fileset sources_1
synth_design -top $top -part @part@ -mode out_of_context
opt_design
place_design
route_design
report_utilization -file utilization.rpt
report_timing_summary -file timing.rpt
write_checkpoint -force $top.dcp
