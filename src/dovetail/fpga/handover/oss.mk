# make: synthesis, placement, routing and bitstream with Yosys, nextpnr and Project Trellis.
@variable@ ?= @top@
PYTHON ?= python3
YOSYS ?= yosys
NEXTPNR ?= nextpnr-ecp5
ECPPACK ?= ecppack
SEED ?= 1
TOP := $(@variable@)

$(TOP).bit: $(TOP).config
	$(ECPPACK) $< $@

$(TOP).config: $(TOP).json clock.lpf
	$(NEXTPNR) --@device@ --json $< --lpf clock.lpf --lpf-allow-unconstrained --timing-allow-fail --freq @mhz@ --seed $(SEED) --textcfg $@ --report timing.json

$(TOP).json: $(TOP).mapped.json mapped_netlist.py
	$(PYTHON) mapped_netlist.py $< pins_$(TOP) $@

$(TOP).mapped.json: @sources@
	cd rtl && $(YOSYS) -p 'read_verilog @inside@; synth_ecp5 -top pins_$(TOP) -json ../$@'

clean:
	rm -f *.bit *.config *.json

.PHONY: clean
