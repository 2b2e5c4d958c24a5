# vivado -mode batch -source zynq/block_design.tcl, in the folder that holds rtl/: @top@ beside the processors of a @part@.
# Never run on a board. Set DOVETAIL_BOARD_PART to a board of Vivado's store, so that its memory and clocks are set up.
set name dovetail
create_project $name zynq/$name -part @part@ -force
if {[info exists ::env(DOVETAIL_BOARD_PART)]} { set_property board_part $::env(DOVETAIL_BOARD_PART) [current_project] }
@sources@
update_compile_order -fileset sources_1
create_bd_design $name

proc cell {kind name} { return [create_bd_cell -type ip -vlnv [lindex [get_ipdefs "xilinx.com:ip:$kind:*"] end] $name] }
proc wire {from to} { connect_bd_net [get_bd_pins $from] [get_bd_pins $to] }
proc bus {from to} { connect_bd_intf_net [get_bd_intf_pins $from] [get_bd_intf_pins $to] }

# Processors: a clock of @mhz@ MHz, a port to registers, a port to memory.
cell @processors@ ps
if {[info exists ::env(DOVETAIL_BOARD_PART)]} {
  apply_bd_automation -rule xilinx.com:bd_rule:@processors@ -config {@preset@} [get_bd_cells ps]
}
set_property -dict [list @settings@] [get_bd_cells ps]
cell proc_sys_reset reset
wire ps/@clock@ reset/slowest_sync_clk
wire ps/@running@ reset/ext_reset_in
@port_clocks@

create_bd_cell -type module -reference @top@ shell
wire ps/@clock@ shell/clk
wire reset/peripheral_reset shell/rst

# Registers of the shell and of the DMAs; what reads and writes memory.
cell smartconnect registers
set_property -dict [list CONFIG.NUM_SI 1 CONFIG.NUM_MI @slaves@ CONFIG.NUM_CLKS 1] [get_bd_cells registers]
bus ps/@to_registers@ registers/S00_AXI
cell smartconnect memory
set_property -dict [list CONFIG.NUM_SI @masters@ CONFIG.NUM_MI 1 CONFIG.NUM_CLKS 1] [get_bd_cells memory]
bus memory/M00_AXI ps/@to_memory@
foreach part {registers memory} {
  wire ps/@clock@ $part/aclk
  wire reset/peripheral_aresetn $part/aresetn
}
bus registers/M00_AXI shell/@lite@
@dmas@

# Addresses: what dovetail.dtso says.
assign_bd_address -offset @base@ -range 64K -target_address_space [get_bd_addr_spaces ps/Data] [get_bd_addr_segs shell/@lite@/*]
@addresses@
assign_bd_address
validate_bd_design
save_bd_design
add_files -norecurse [make_wrapper -files [get_files $name.bd] -top]
set_property top ${name}_wrapper [current_fileset]
update_compile_order -fileset sources_1
launch_runs impl_1 -to_step write_bitstream -jobs 4
wait_on_run impl_1
open_run impl_1
report_utilization -file zynq/utilization.rpt
report_timing_summary -file zynq/timing.rpt
write_bitstream -force zynq/$name.bit
file copy -force [lindex [glob zynq/$name/$name.gen/sources_1/bd/$name/hw_handoff/*.hwh] 0] zynq/$name.hwh
