"use strict";
// Draws the curves that a page holds as data. A click on a name hides or shows it, dragging zooms,
// a double click shows all again, and beside each name stands its value at the pointer.
const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [860, 400, 62, 846, 12, 354];
const [TIME, STEP, VALUE, LOW, HIGH] = [0, 1, 2, 3, 4]; // places in a point
const GRID = "#e2e2e2";
const LEAST_DRAG = 6; // of a zoom, in units of the drawing

function made(name, attributes, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent?.append(node);
  return node;
}

function button(text, parent, press) {
  const node = document.createElement("button");
  node.type = "button";
  node.textContent = text;
  node.addEventListener("click", () => press(node));
  parent.append(node);
  return node;
}

const said = (value) => String(Number(value.toPrecision(4)));

function ends(values, without) {
  if (!values.length) return without;
  const wider = ([low, high], value) => [Math.min(low, value), Math.max(high, value)];
  return values.reduce(wider, [Infinity, -Infinity]);
}

// Places for about `count` ticks from `low` to `high`: 1, 2 or 5 times powers of ten.
function ticks(low, high, count, log) {
  if (log && high / low > 8) {
    const powers = Array.from({ length: 40 }, (_, at) => 10 ** (at - 20));
    const within = (value) => value >= low && value <= high;
    const all = powers.flatMap((power) => [power, 2 * power, 5 * power]).filter(within);
    return all.length > 8 ? powers.filter(within) : all;
  }
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const first = Math.ceil(low / size - 1e-9);
  const length = Math.floor(high / size + 1e-9) - first + 1;
  return Array.from({ length }, (_, at) => (first + at) * size);
}

// From values between `low` and `high` to places between `from` and `to`; `back` from those.
function scale([low, high], from, to, log) {
  const [bent, straight] = log ? [Math.log, Math.exp] : [(value) => value, (value) => value];
  const [begin, length] = [bent(low), bent(high) - bent(low) || 1];
  const of = (value) => from + ((bent(value) - begin) / length) * (to - from);
  of.back = (at) => straight(begin + ((at - from) / (to - from)) * length);
  return of;
}

function between(one, other) {
  const [x, y] = [Math.min(one.x, other.x), Math.min(one.y, other.y)];
  return { x, y, width: Math.abs(one.x - other.x), height: Math.abs(one.y - other.y) };
}

function chart(figure, told) {
  const hidden = new Set();
  const visible = () => told.curves.filter((each) => !hidden.has(each));
  let over = TIME;
  let view = null; // zoomed to: ends of x and y
  let drag = null; // where it began
  let x, y; // scales
  const tools = figure.querySelector(".tools");
  const svg = made("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  svg.setAttribute("aria-label", `${told.metric} of each method; the table has the numbers`);
  figure.querySelector(".plot").append(svg);
  const values = told.curves.map(entry);
  button("over steps", tools, (node) => {
    over = over === TIME ? STEP : TIME;
    node.textContent = over === TIME ? "over steps" : "over time";
    show(null);
  });
  const whole = button("show all", tools, () => show(null));
  svg.addEventListener("pointerdown", (event) => {
    drag = place(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => point(place(event)));
  svg.addEventListener("pointerup", (event) => release(place(event)));
  svg.addEventListener("pointercancel", () => (drag = null));
  svg.addEventListener("pointerleave", () => point(null));
  svg.addEventListener("dblclick", () => show(null));
  show(null);

  function entry(curve) {
    const node = button("", figure.querySelector(".legend"), () => {
      if (!hidden.delete(curve)) hidden.add(curve);
      node.setAttribute("aria-pressed", String(!hidden.has(curve)));
      show(view);
    });
    node.setAttribute("aria-pressed", "true");
    const mark = made("svg", { viewBox: "0 0 30 10", width: 30, height: 10, "aria-hidden": true });
    made("line", { x1: 0, x2: 30, y1: 5, y2: 5, ...curve.look }, mark);
    const value = document.createElement("output");
    node.append(mark, ` ${curve.name} `, value);
    return value;
  }

  // What all visible curves need: the time or steps, the values with their intervals, the target.
  function extent(log) {
    const points = visible().flatMap((each) => each.points);
    const across = ends(points.map((each) => each[over]), [1, 2]);
    const up = points.flatMap((each) => [each[VALUE], each[LOW], each[HIGH]]);
    const [low, high] = ends([...up, told.target].filter((each) => each !== null), [0, 1]);
    const room = (high - low || 1) * 0.04;
    return { x: log ? across : [0, across[1]], y: [low - room, high + room] };
  }

  function show(part) {
    view = part;
    const log = told.log && over === TIME;
    const shown = view ?? extent(log);
    [x, y] = [scale(shown.x, LEFT, RIGHT, log), scale(shown.y, BOTTOM, TOP, false)];
    svg.replaceChildren();
    whole.hidden = view === null;
    for (const value of ticks(...shown.x, 7, log)) {
      made("line", { x1: x(value), x2: x(value), y1: TOP, y2: BOTTOM, stroke: GRID }, svg);
      made("text", { x: x(value), y: BOTTOM + 17, "text-anchor": "middle" }, svg, said(value));
    }
    for (const value of ticks(...shown.y, 6, false)) {
      made("line", { x1: LEFT, x2: RIGHT, y1: y(value), y2: y(value), stroke: GRID }, svg);
      made("text", { x: LEFT - 7, y: y(value) + 4, "text-anchor": "end" }, svg, said(value));
    }
    const [middle, centre] = [(LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2];
    const name = over === TIME ? "training time (emulated s)" : "step";
    made("text", { x: middle, y: HEIGHT - 8, "text-anchor": "middle" }, svg, name);
    const turned = { transform: `translate(14 ${centre}) rotate(-90)`, "text-anchor": "middle" };
    made("text", turned, svg, told.metric);
    const id = `inside-${figure.dataset.of}`;
    const area = { x: LEFT, y: TOP, width: RIGHT - LEFT, height: BOTTOM - TOP };
    made("rect", area, made("clipPath", { id }, svg));
    const inside = made("g", { "clip-path": `url(#${id})` }, svg);
    for (const curve of visible()) line(curve, inside);
    if (told.target !== null) target(inside, y(told.target));
  }

  function line(curve, parent) {
    const at = (each, which) => `${x(each[over]).toFixed(1)},${y(each[which]).toFixed(1)}`;
    const sure = curve.points.filter((each) => each[LOW] !== null && each[HIGH] !== null);
    const around = [...sure.map((p) => at(p, HIGH)), ...sure.map((p) => at(p, LOW)).reverse()];
    made("polygon", { points: around.join(" "), fill: curve.look.stroke }, parent);
    const points = curve.points.map((each) => at(each, VALUE)).join(" ");
    made("polyline", { points, ...curve.look }, parent);
  }

  function target(parent, height) {
    made("line", { x1: LEFT, x2: RIGHT, y1: height, y2: height, class: "target" }, parent);
    const words = { x: RIGHT - 4, y: height - 5, "text-anchor": "end" };
    made("text", words, parent, `target ${said(told.target)}`);
  }

  function place(event) {
    const of = new DOMPoint(event.clientX, event.clientY);
    const at = of.matrixTransform(svg.getScreenCTM().inverse());
    const within = (value, low, high) => Math.min(high, Math.max(low, value));
    return { x: within(at.x, LEFT, RIGHT), y: within(at.y, TOP, BOTTOM) };
  }

  // Beside each name its last value up to the pointer, until its curve ends; null: none.
  function point(at) {
    svg.querySelectorAll(".pointer").forEach((each) => each.remove());
    told.curves.forEach((curve, which) => {
      const points = at && !hidden.has(curve) ? curve.points : [];
      const seen = points.filter((each) => x(each[over]) <= at.x + 1).at(-1);
      const shown = seen && x(points.at(-1)[over]) >= at.x - 1 ? seen : null;
      values[which].textContent = shown ? said(shown[VALUE]) : "";
      if (!shown || x(shown[over]) < LEFT) return;
      const dot = { cx: x(shown[over]), cy: y(shown[VALUE]), r: 3.5, fill: curve.look.stroke };
      made("circle", { ...dot, class: "pointer" }, svg);
    });
    if (!at) return;
    made("line", { x1: at.x, x2: at.x, y1: TOP, y2: BOTTOM, class: "pointer" }, svg);
    const where = said(x.back(at.x)) + (over === TIME ? " s" : "");
    made("text", { x: at.x + 5, y: TOP + 11, class: "pointer" }, svg, where);
    if (drag) made("rect", { ...between(drag, at), class: "pointer zoom" }, svg);
  }

  function release(at) {
    const box = drag ? between(drag, at) : { width: 0 };
    drag = null;
    if (box.width < LEAST_DRAG) return;
    const flat = box.height < LEAST_DRAG; // zooms in x alone
    const up = flat ? [BOTTOM, TOP] : [box.y + box.height, box.y];
    show({ x: [box.x, box.x + box.width].map(x.back), y: up.map(y.back) });
  }
}

for (const figure of document.querySelectorAll("figure.curves")) {
  chart(figure, JSON.parse(figure.querySelector("script").textContent));
  figure.hidden = false;
}
