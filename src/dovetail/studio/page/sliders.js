// Sliders: what can be moved, and what it asks.
import { make } from "./make.js";

const $ = (id) => document.getElementById(id);
// Each slider's position is a part of its way, its value what is asked; the end at `free` asks nothing.
const percent = (value) => `${Math.round(100 * value)} %`;
const times = (value) => (value === 1 ? "as the board has it" : `× ${value.toPrecision(2)}`);
export const power = (low, high) => ({ at: (part) => low * (high / low) ** part, part: (value) => Math.log(value / low) / Math.log(high / low) });
const line = (low, high) => ({ at: (part) => low + (high - low) * part, part: (value) => (value - low) / (high - low) });
const spread = (name) => ({ get at() { return power(0.3 * scale[name], 4 * scale[name]).at; } });
export const scale = { latency: 10, energy: 50, rate: 100 };
const shown = (value) => (value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3));
export const SLIDERS = {
  max_latency_ms: { words: "Latency at most", range: spread("latency"), free: 1, say: (v) => `${shown(v)} ms` },
  max_energy_mj: { words: "Energy at most", range: spread("energy"), free: 1, say: (v) => `${shown(v)} mJ` },
  min_fps: { words: "Frames/s at least", range: spread("rate"), free: 0, say: shown },
  fill: { words: "FPGA area at most", range: line(0.05, 1), free: 1, say: percent },
  thrift: { words: "Thrift: give up for area", range: line(0, 0.2), start: 0, say: percent },
  clock: { words: "FPGA clock", range: power(0.25, 4), start: 0.5, say: times },
  bandwidth: { words: "Link bandwidth", range: power(0.1, 10), start: 0.5, say: times },
  bits: { words: "Bits of integers", range: { at: (part) => Math.round(2 + 6 * part), part: (bits) => (bits - 2) / 6 }, free: 1, steps: 6, say: (v) => `${v} bits` },
};
const top = (name) => SLIDERS[name].steps ?? 100; // of its way
const FREE = { fill: "as it fits", bits: "8 bits" };
export const values = {};

function valueOf(name) {
  const { range, free } = SLIDERS[name];
  const part = Number($(name).value) / top(name);
  if (part === free) return null;
  const value = range.at(part);
  return Math.abs(value - 1) < 1e-9 ? 1 : value;
}
export function tell(name) {
  const value = values[name];
  $(`${name}-said`).textContent = value === null ? (FREE[name] ?? "no limit") : SLIDERS[name].say(value);
}
function place(name, part) {
  $(name).value = top(name) * part;
  values[name] = valueOf(name);
  tell(name);
}
export function free(name) {
  place(name, SLIDERS[name].free ?? SLIDERS[name].start);
}
export function mountSliders(moved) {
  for (const [name, { words }] of Object.entries(SLIDERS)) {
    const label = make("label", "", { class: "slider", for: name });
    const input = make("input", "", { type: "range", id: name, min: 0, max: top(name), step: 1, "aria-describedby": `${name}-said` });
    label.append(make("span", words), make("output", "", { id: `${name}-said`, for: name }), input);
    $("sliders").append(label);
    free(name);
    input.addEventListener("input", () => {
      values[name] = valueOf(name);
      tell(name);
      moved();
    });
  }
}
