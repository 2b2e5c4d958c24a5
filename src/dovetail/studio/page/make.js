// Elements with their words and attributes; words go in as text, never as markup.
export const make = (tag, words = "", attributes = {}) => {
  const element = document.createElement(tag);
  element.textContent = words;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
const SVG = "http://www.w3.org/2000/svg";
export const drawn = (tag, attributes, words = "") => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = words;
  return element;
};
