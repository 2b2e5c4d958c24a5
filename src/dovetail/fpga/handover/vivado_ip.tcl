# vivado -mode batch -source package_ip.tcl: packs @top@ as an IP for block designs, into ip/.
create_project packaging packaging -part @part@ -force
@sources@
set_property top @top@ [current_fileset]
update_compile_order -fileset sources_1
ipx::package_project -root_dir ip -vendor dovetail -library networks -taxonomy /UserIP -import_files -force
@buses@
ipx::save_core [ipx::current_core]
