// The three charts: the figure to draw, and two renderers: a canvas (at once, everywhere) and plotly.js (once it is
// loaded: zoom and hover). The first part of the widget's one
// module, which dashboard.py concatenates.

// rows.py's VIEW_COLUMNS
const COLUMNS = ["step", "epoch", "time_s", "loss", "validation_loss", "n_workers", "spent_usd", "servers_usd"];
const WIDTH = COLUMNS.length;
const [STEP, EPOCH, TIME, LOSS, VALIDATION, WORKERS, SPENT, SERVERS] = COLUMNS.keys();
const AXES = { step: STEP, seconds: TIME, dollars: SPENT };
const AXIS_TITLES = { step: "step", seconds: "seconds", dollars: "dollars spent" };
const CAP_IN_SIGHT = 2; // as in view_model.py: a higher cap is shown as text, since its line would flatten the curve
const BASE_IN_SIGHT = 0.25; // as in view_model.py: most distance of a drawn baseline, as a share of the losses' range
const MOST_POINTS = 1200; // of a line on screen

// ------------------------------------------------------------------------------------- plotly.js, once for the page

const KEY = Symbol.for("mlless_nb.plotly");
globalThis[KEY] ??= {
  lib: null,
  failed: false,
  asked: 0,
  waiting: new Set(),
  /** Call `ready` when plotly.js is loaded; until then, and always if the page forbids new scripts, the canvas draws. */
  want(model, ready) {
    if (this.lib || this.failed) return ready();
    this.waiting.add(ready);
    const ask = () => {
      if (this.lib || this.failed || !this.waiting.has(ready)) return;
      if (Date.now() - this.asked > 8000) {
        this.asked = Date.now();
        model.send({ cmd: "plotly" });
      }
      setTimeout(ask, 3000);
    };
    ask();
  },
  take(view) {
    if (this.lib) return;
    try {
      const module = { exports: {} };
      new Function("module", "exports", "define", new TextDecoder().decode(view))(module, module.exports, undefined);
      this.lib = module.exports.react ? module.exports : globalThis.Plotly;
    } catch (error) {
      console.warn("mlless_nb: plotly.js cannot be used on this page, the canvas stays", error);
    }
    this.failed = !this.lib;
    for (const ready of this.waiting) ready();
    this.waiting.clear();
  },
};
const page = globalThis[KEY];

// ------------------------------------------------------------------------------------------------ what is to be drawn

/** Round numbers in [low, high], at most about seven: steps of 1, 2 or 5 times a power of ten. */
function ticks(low, high, about = 7) {
  if (!(high > low)) return [low];
  const power = 10 ** Math.floor(Math.log10((high - low) / about));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => (high - low) / s <= about);
  const values = [];
  for (let k = Math.ceil(low / step - 1e-9); k <= high / step + 1e-9; k++) values.push(k * step || 0); // never -0
  return values;
}

function tickTexts(values, prefix = "") {
  const gap = values.length > 1 ? values[1] - values[0] : Math.abs(values[0]) || 1;
  let digits = Math.min(Math.max(0, -Math.floor(Math.log10(gap) + 1e-9)), 9);
  if (values.some((v) => Math.abs(Number(v.toFixed(digits)) - v) > gap * 1e-6)) digits += 1;
  return values.map((v) => prefix + v.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
}

/** The points of one line within `span`, thinned to `MOST_POINTS` by minima and maxima. */
function points(rows, xColumn, yColumn, span) {
  const x = [];
  const y = [];
  for (let i = 0; i < rows.n; i++) {
    const at = rows.at(i, xColumn);
    const value = rows.at(i, yColumn);
    const inside = at >= span[0] && at <= span[1];
    if (Number.isNaN(value) || !inside) continue;
    x.push(at);
    y.push(value);
  }
  if (x.length <= MOST_POINTS) return { x, y };
  const thin = { x: [], y: [] };
  const length = Math.ceil((2 * x.length) / MOST_POINTS);
  for (let begin = 0; begin < x.length; begin += length) {
    const end = Math.min(begin + length, x.length);
    let low = begin;
    let high = begin;
    for (let i = begin; i < end; i++) {
      if (y[i] < y[low]) low = i;
      if (y[i] > y[high]) high = i;
    }
    for (const i of new Set([Math.min(low, high), Math.max(low, high), ...(end === x.length ? [end - 1] : [])])) {
      thin.x.push(x[i]);
      thin.y.push(y[i]);
    }
  }
  return thin;
}

/** The three charts as data, drawn by the canvas and by plotly. */
function panels({ rows, status }, { against, zoom, log }) {
  const xColumn = AXES[against];
  // labels of levels are at the left, where the loss is still high and the cost low
  const last = rows.n ? rows.at(rows.n - 1, xColumn) : 0;
  const span = zoom || [0, last > 0 ? last * 1.04 : 1];
  const line = (column) => points(rows, xColumn, column, span);
  const training = line(LOSS);
  const validation = line(VALIDATION);
  const workers = line(WORKERS);
  const spent = line(SPENT);
  const levels = [...(status.target == null ? [] : [status.target])];
  const seen = [...training.y, ...validation.y, ...levels].filter((v) => !log || v > 0);
  let [low, high] = seen.length ? [Math.min(...seen), Math.max(...seen)] : [0, 1];
  const hasBase = status.base != null && seen.length > 0 && status.base <= high + BASE_IN_SIGHT * (high - low);
  // with room for its label if it is the lowest line; the axis may be logarithmic
  const under = log ? status.base / (high / status.base) ** 0.2 : status.base - 0.2 * (high - status.base);
  if (hasBase) [low, high] = [status.base < low ? under : low, Math.max(high, status.base)];
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  const lossRange = log && low > 0 ? [low / (high / low) ** 0.04, high * (high / low) ** 0.04] : [low - pad, high + pad];
  const fewer = [];
  for (let i = 1; i < rows.n; i++) {
    const x = rows.at(i, xColumn);
    if (rows.at(i, WORKERS) < rows.at(i - 1, WORKERS) && x >= span[0] && x <= span[1]) fewer.push(x);
  }
  const mostWorkers = Math.max(1, ...workers.y);
  const most = Math.max(1e-9, ...spent.y);
  const hasCap = status.budget != null;
  const isInSight = hasCap && status.budget <= CAP_IN_SIGHT * most;
  const x = { span, title: AXIS_TITLES[against], prefix: against === "dollars" ? "$" : "" };
  const hasValidation = validation.x.length > 0;
  const end = hasValidation ? { x: validation.x.at(-1), y: validation.y.at(-1) } : null;
  const best = bestPoint(rows, status.best_step, xColumn, span);
  const lossLevels = [];
  if (status.target != null) lossLevels.push({ y: status.target, text: status.target_text, hue: "mut", dash: [5, 3], width: 1.3 });
  if (hasBase) lossLevels.push({ y: status.base, text: status.base_text, hue: "mut", dash: [2, 3], width: 1, isRight: true });
  const loss = [{ ...training, style: hasValidation ? "train" : "main", name: "training" }];
  if (hasValidation) loss.push({ ...validation, style: "main", name: "validation" });
  return [
    {
      title: status.loss_title || "Loss", notes: hasValidation ? [["main", "validation"], ["train", "training"]] : [["main", "training"]], lines: loss, x, dot: end,
      range: lossRange, log: Boolean(log && low > 0), hue: "blue", digits: ".4f", marks: [], best, levels: lossLevels,
    },
    {
      title: "Workers", notes: fewer.length ? [["mark", "scale-in"]] : [], lines: [{ ...workers, style: "stair", name: "workers" }], x,
      range: [0, mostWorkers * 1.12], hue: "orange", digits: ".0f", whole: true, marks: fewer, levels: [],
    },
    {
      title: "Dollars", notes: [["area", "spent"], ["under", "of which servers"]], prefix: "$", x, hue: "green", digits: "$.6f", marks: [],
      range: [0, isInSight ? Math.max(most, status.budget) * 1.1 : most * 1.25],
      lines: [{ ...spent, style: "area", name: "spent" }, { ...line(SERVERS), style: "under", name: "servers" }],
      levels: isInSight ? [{ y: status.budget, text: status.budget_text, hue: "red", dash: [6, 3], width: 1.3 }] : [],
      remark: hasCap && !isInSight ? { text: `↑ ${status.budget_text}`, hue: "red" } : null,
    },
  ];
}

/** The evaluation after step `bestStep`, if it is among the rows and within the visible range. */
function bestPoint(rows, bestStep, xColumn, span) {
  if (bestStep == null) return null;
  for (let i = rows.n - 1; i >= 0; i--) {
    const [x, y] = [rows.at(i, xColumn), rows.at(i, VALIDATION)];
    if (rows.at(i, STEP) === bestStep && !Number.isNaN(y)) return x >= span[0] && x <= span[1] ? { x, y } : null;
  }
  return null;
}

/** Whether a level's label is drawn above it, because there is no room below or the curve ends there. */
function isAbove({ range, dot }, level) {
  const share = (y) => (y - range[0]) / (range[1] - range[0]);
  const gap = level.isRight && dot ? share(level.y) - share(dot.y) : -1;
  return share(level.y) < 0.18 || (gap >= 0 && gap < 0.16 && share(level.y) < 0.88);
}

/** Whether the best evaluation is so far from the newest one that it needs a label. */
const isApart = ({ best, dot, x }) => !dot || dot.x - best.x > 0.06 * (x.span[1] - x.span[0]);

function yTicks(panel) {
  if (!panel.log) return ticks(...panel.range).filter((v) => !panel.whole || Number.isInteger(v));
  const [low, high] = panel.range;
  if (high / low < 20) return ticks(low, high);
  return ticks(Math.log10(low), Math.log10(high)).map((v) => 10 ** v);
}

// ------------------------------------------------------------------------------------------------------- two drawers

const MARGIN = { l: 52, r: 16, t: 12, b: 36 };
const FONT_PX = 10;
const CHARACTER_PX = 6;

/** The ticks of the x axis and their texts, as many as do not overlap in a chart of this width. */
function xTicks({ x }, width) {
  for (let about = 7; ; about--) {
    const values = ticks(...x.span, about);
    const texts = tickTexts(values, x.prefix);
    const room = ((width - MARGIN.l - MARGIN.r) * (values[1] - values[0])) / (x.span[1] - x.span[0]);
    if (about === 1 || values.length < 2 || Math.max(...texts.map((text) => text.length)) * CHARACTER_PX + 8 <= room) return [values, texts];
  }
}

function drawCanvas(div, panel, colour) {
  let canvas = div.querySelector("canvas");
  if (!canvas) div.replaceChildren((canvas = document.createElement("canvas")));
  const [width, height, dots] = [div.clientWidth, div.clientHeight, globalThis.devicePixelRatio || 1];
  canvas.width = width * dots;
  canvas.height = height * dots;
  const pen = canvas.getContext("2d");
  pen.scale(dots, dots);
  pen.font = `${FONT_PX}px ${colour.font}`;
  const scale = panel.log ? Math.log10 : (v) => v;
  const [low, high] = panel.range.map(scale);
  const atX = (x) => MARGIN.l + ((width - MARGIN.l - MARGIN.r) * (x - panel.x.span[0])) / (panel.x.span[1] - panel.x.span[0]);
  const atY = (y) => height - MARGIN.b - ((height - MARGIN.t - MARGIN.b) * (scale(y) - low)) / (high - low);
  const stroke = (hue, lineWidth, path, dash = [], alpha = 1) => {
    pen.beginPath();
    pen.setLineDash(dash);
    Object.assign(pen, { strokeStyle: hue, lineWidth, globalAlpha: alpha, lineJoin: "round" });
    path();
    pen.stroke();
    pen.globalAlpha = 1;
  };
  const text = (words, x, y, align, hue) => {
    Object.assign(pen, { fillStyle: hue, textAlign: align });
    pen.fillText(words, x, y);
  };
  const overCurves = (words, x, y, hue, align = "left") => {
    Object.assign(pen, { strokeStyle: colour.bg, lineWidth: 3, textAlign: align });
    pen.setLineDash([]);
    pen.strokeText(words, x, y);
    text(words, x, y, align, hue);
  };
  const across = (y) => () => (pen.moveTo(MARGIN.l, atY(y)), pen.lineTo(width - MARGIN.r, atY(y)));
  const heights = yTicks(panel);
  tickTexts(heights, panel.prefix).forEach((words, i) => {
    stroke(colour.line, 1, across(heights[i]));
    text(words, MARGIN.l - 6, atY(heights[i]) + 3.5, "right", colour.mut);
  });
  const [along, alongTexts] = xTicks(panel, width);
  alongTexts.forEach((words, i) => text(words, atX(along[i]), height - MARGIN.b + 15, "center", colour.mut));
  text(panel.x.title, (MARGIN.l + width - MARGIN.r) / 2, height - 5, "center", colour.mut);
  for (const { x, y, style } of panel.lines) {
    const path = () =>
      x.forEach((at, i) => {
        if (i === 0) return pen.moveTo(atX(at), atY(y[i]));
        if (style === "stair") pen.lineTo(atX(at), atY(y[i - 1]));
        pen.lineTo(atX(at), atY(y[i]));
      });
    if ((style === "area" || style === "under") && x.length > 1) {
      pen.beginPath();
      path();
      pen.lineTo(atX(x.at(-1)), atY(0));
      pen.lineTo(atX(x[0]), atY(0));
      pen.fillStyle = style === "area" ? colour.fill1 : colour.fill2;
      pen.fill();
    }
    stroke(colour[panel.hue], style === "train" || style === "under" ? 1 : 2, path, [], style === "train" ? 0.65 : 1);
  }
  for (const level of panel.levels) {
    stroke(colour[level.hue], level.width, across(level.y), level.dash);
    const y = atY(level.y) + (isAbove(panel, level) ? -4 : 12);
    if (level.isRight) overCurves(level.text, width - MARGIN.r - 3, y, colour[level.hue], "right");
    else overCurves(level.text, MARGIN.l + 5, y, colour[level.hue]);
  }
  if (panel.remark) overCurves(panel.remark.text, MARGIN.l + 5, MARGIN.t + 9, colour[panel.remark.hue]);
  pen.fillStyle = colour[panel.hue];
  for (const x of panel.marks) {
    pen.beginPath();
    [[-4, 2], [4, 2], [0, 9]].forEach(([dx, y]) => pen.lineTo(atX(x) + dx, y));
    pen.fill();
  }
  if (panel.dot) {
    pen.beginPath();
    pen.arc(atX(panel.dot.x), atY(panel.dot.y), 3, 0, 7);
    pen.fill();
  }
  if (panel.best) {
    const [x, y] = [atX(panel.best.x), atY(panel.best.y)];
    stroke(colour[panel.hue], 1.5, () => pen.arc(x, y, 4.5, 0, 7));
    if (isApart(panel)) overCurves("best", x, y + 17, colour.mut, "center");
  }
}

function drawPlotly(lib, div, panel, colour, against, onZoom) {
  const hue = colour[panel.hue];
  const look = {
    train: { line: { color: hue, width: 1 }, opacity: 0.65 },
    main: { line: { color: hue, width: 2 } },
    stair: { line: { color: hue, width: 2, shape: "hv" } },
    area: { line: { color: hue, width: 2 }, fill: "tozeroy", fillcolor: colour.fill1 },
    under: { line: { color: hue, width: 1 }, fill: "tozeroy", fillcolor: colour.fill2 },
  };
  const traces = panel.lines.map(({ x, y, style, name }) => ({
    x, y, name, type: "scatter", mode: "lines", hovertemplate: `%{y:${panel.digits}}`, ...look[style],
  }));
  const top = panel.range[1];
  if (panel.marks.length) {
    const marker = { symbol: "triangle-down", size: 8, color: hue };
    traces.push({ x: panel.marks, y: panel.marks.map(() => top), mode: "markers", marker, cliponaxis: false, hoverinfo: "skip" });
  }
  if (panel.dot) traces.push({ x: [panel.dot.x], y: [panel.dot.y], mode: "markers", marker: { size: 6, color: hue }, hoverinfo: "skip" });
  if (panel.best) {
    const marker = { symbol: "circle-open", size: 9, color: hue, line: { width: 1.5 } };
    traces.push({ x: [panel.best.x], y: [panel.best.y], mode: "markers", marker, hoverinfo: "skip" });
  }
  const heights = yTicks(panel);
  const [along, alongTexts] = xTicks(panel, div.clientWidth);
  const { levels, remark, best } = panel;
  const height = (y) => (panel.log ? Math.log10(y) : y);
  const words = { showarrow: false, borderpad: 0, xref: "paper", x: 0, xshift: 4, xanchor: "left" };
  const annotations = [];
  for (const level of levels) {
    const side = level.isRight ? { x: 1, xshift: -2, xanchor: "right" } : {};
    annotations.push({ ...words, ...side, text: level.text, y: height(level.y), yanchor: isAbove(panel, level) ? "bottom" : "top", bgcolor: colour.halo, font: { color: colour[level.hue], size: FONT_PX } });
  }
  if (best && isApart(panel)) annotations.push({ showarrow: false, borderpad: 0, x: best.x, y: height(best.y), yshift: -5, yanchor: "top", text: "best", bgcolor: colour.halo, font: { color: colour.mut, size: FONT_PX } });
  if (remark) annotations.push({ ...words, text: remark.text, yref: "paper", y: 1, yanchor: "top", bgcolor: colour.halo, font: { color: colour[remark.hue], size: FONT_PX } });
  const layout = {
    width: div.clientWidth, height: div.clientHeight, margin: { ...MARGIN, pad: 0 }, showlegend: false, hovermode: "x unified", dragmode: "zoom",
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { family: colour.font, size: FONT_PX, color: colour.mut },
    hoverlabel: { bgcolor: colour.bg, bordercolor: colour.line, font: { color: colour.fg, size: 11 } },
    xaxis: {
      range: panel.x.span, showgrid: false, zeroline: false, tickvals: along, ticktext: alongTexts, tickangle: 0,
      ticklabelstandoff: 4, title: { text: panel.x.title, standoff: 3, font: { color: colour.mut, size: FONT_PX } },
      unifiedhovertitle: { text: { step: "step %{x:,d}", seconds: "%{x:,.1f} s", dollars: "%{x:$.6f} spent" }[against] },
    },
    yaxis: {
      range: panel.log ? panel.range.map(Math.log10) : panel.range, type: panel.log ? "log" : "linear", gridcolor: colour.line, zeroline: false,
      fixedrange: true, ticklabelstandoff: 4, tickvals: heights, ticktext: tickTexts(heights, panel.prefix),
    },
    shapes: levels.map(({ y, hue: of, width, dash }) => ({
      type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color: colour[of], width, dash: `${dash[0]}px,${dash[1]}px` },
    })),
    annotations,
  };
  const isNew = !div.classList.contains("js-plotly-plot");
  if (isNew) div.replaceChildren();
  lib.react(div, traces, layout, { displayModeBar: false, doubleClick: false, responsive: false, showTips: false });
  if (!isNew) return;
  div.on("plotly_relayout", (change) => {
    const from = change["xaxis.range[0]"];
    if (from !== undefined) onZoom([Math.max(0, from), change["xaxis.range[1]"]]);
  });
  div.on("plotly_doubleclick", () => onZoom(null));
}
