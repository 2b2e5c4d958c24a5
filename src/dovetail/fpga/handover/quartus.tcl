# quartus_sh -t build.tcl: creates the project @top@, compiles it and reports timing.
load_package flow
set top @top@
if {[info exists ::env(@variable@)]} { set top $::env(@variable@) }
project_new $top -overwrite
set_global_assignment -name FAMILY "@family@"
set_global_assignment -name DEVICE @part@
set_global_assignment -name TOP_LEVEL_ENTITY $top
set_global_assignment -name VERILOG_INPUT_VERSION VERILOG_2001
@sources@
set_global_assignment -name SDC_FILE clock.sdc
# There are more pins than a package has: they stay inside the device until a board design connects them.
set pins {
@pins@
}
foreach pin [dict get $pins $top] {
  set_instance_assignment -name VIRTUAL_PIN ON -to $pin
}
export_assignments
execute_flow -compile
project_close
