// What the three charts show, as data: ticks, curves thinned to what a screen can show, ranges, levels. Pure; the first
// part of the widget's one module, which dashboard.py concatenates.

// rows.py's VIEW_COLUMNS
const COLUMNS = ["step", "epoch", "time_s", "loss", "validation_loss", "n_workers", "spent_usd", "servers_usd"];
const WIDTH = COLUMNS.length;
const [STEP, EPOCH, TIME, LOSS, VALIDATION, WORKERS, SPENT, SERVERS] = COLUMNS.keys();
const AXES = { step: STEP, seconds: TIME, dollars: SPENT };
const CAP_IN_SIGHT = 2; // as in view_model.py: a higher cap is shown as text, since its line would flatten the curve
const REMARK_ROOM = 0.16; // as in svg.py: room above the losses for the words on a baseline, as a share of their range
const BASE_IN_SIGHT = 0.25; // as in view_model.py: most distance of a drawn baseline, as a share of the losses' range
const MOST_POINTS = 800; // of a line on screen
// as in loss_range.py: the loss axis ignores this share of the steps, if there are so many losses
const HEAD_SHARE = 0.04;
const HEAD_LEAST = 20;
const DIVERGES = 30; // as in loss_range.py: highest loss over the lowest one from which the axis is logarithmic
const MOST_DECADES = 1e6; // as in loss_range.py: losses above this many times the lowest one are clipped

/** `1 worker`, `2 workers`; as plurals.py. */
const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${String(n) === "1" ? "" : "s"}`;

/** Round numbers in [low, high], at most about seven: steps of 1, 2 or 5 times a power of ten. */
function ticks(low, high, about = 7) {
  if (!(high > low)) return [low];
  const power = 10 ** Math.floor(Math.log10((high - low) / about));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => (high - low) / s <= about);
  const values = [];
  for (let k = Math.ceil(low / step - 1e-9); k <= high / step + 1e-9; k++) values.push(k * step || 0); // never -0
  return values;
}

/** The values with as many decimals as tell them apart; large ones in short, as ``2.5e6``. */
function tickTexts(values, prefix = "") {
  if (Math.max(...values.map(Math.abs)) >= 1e5) return values.map((v) => prefix + short(v));
  const gaps = values.slice(1).map((v, i) => v - values[i]);
  const gap = Math.min(...gaps.filter((g) => g > 0), Math.abs(values[0]) || 1);
  let digits = Math.min(Math.max(0, -Math.floor(Math.log10(gap) + 1e-9)), 9);
  if (values.some((v) => Math.abs(Number(v.toFixed(digits)) - v) > gap * 1e-6)) digits += 1;
  return values.map((v) => prefix + v.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
}

const short = (v) => (v === 0 ? "0" : v.toExponential(Math.abs(v / 10 ** Math.floor(Math.log10(Math.abs(v)))) % 1 < 0.05 ? 0 : 1).replace("e+", "e"));

/** The points of one line within `span`, thinned to `MOST_POINTS` by minima and maxima. */
function points(rows, xColumn, yColumn, span) {
  const x = [];
  const y = [];
  for (let i = 0; i < rows.n; i++) {
    const at = rows.at(i, xColumn);
    const value = rows.at(i, yColumn);
    if (!Number.isFinite(value) || at < span[0] || at > span[1]) continue;
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

/** The row nearest to `value` in an ascending column. */
function nearestRow(rows, column, value) {
  let [low, high] = [0, rows.n - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows.at(middle, column) < value) low = middle + 1;
    else high = middle;
  }
  return low > 0 && value - rows.at(low - 1, column) < rows.at(low, column) - value ? low - 1 : low;
}

/** The range of the loss axis and whether it is logarithmic; see loss_range.py, which does the same for the static view. */
function lossRange(lines, span, levels, wanted) {
  const cut = span[0] + HEAD_SHARE * (span[1] - span[0]);
  const all = lines.flatMap(({ y }) => y);
  let seen = lines.flatMap(({ x, y }) => (x.length >= HEAD_LEAST ? y.filter((_, i) => x[i] >= cut) : y));
  seen = [...(seen.length ? seen : all), ...levels];
  if (!seen.length) return { low: 0, high: 1, log: false };
  let [low, high] = [Math.min(...seen), Math.max(...seen)];
  const log = low > 0 && (wanted ?? high > DIVERGES * low);
  const clipped = log && high > MOST_DECADES * low;
  if (clipped) high = MOST_DECADES * low;
  return { low, high, log, clipped: clipped ? Math.max(...seen) : null };
}

/** The three charts as data. Zoom is a range of steps, so that it stays when the axis changes. */
function panels({ rows, status, earlier }, { against, zoom, log }) {
  const xColumn = AXES[against];
  const path = (status.forecast_path || []).map((point) => [point[["step", "seconds", "dollars"].indexOf(against)], ...point.slice(3)]);
  const [i0, i1] = zoom ? zoom.map((step) => nearestRow(rows, STEP, step)) : [0, rows.n - 1];
  const spanOf = (column) => {
    if (zoom && i1 > i0) return [rows.at(i0, column), rows.at(i1, column)];
    const last = rows.n ? rows.at(rows.n - 1, column) : 0;
    // labels of levels are at the left, where the loss is still high and the cost low
    const ahead = column === xColumn && path.length ? Math.min(path.at(-1)[0], 2 * last) : 0;
    return [0, last > 0 ? Math.max(last * 1.04, ahead) : 1];
  };
  const span = spanOf(xColumn);
  const line = (column, x = xColumn) => points(rows, x, column, spanOf(x));
  const [training, validation, workers] = [line(LOSS), line(VALIDATION), line(WORKERS)];
  const hasValidation = validation.x.length > 0;
  const band = zoom ? [] : path.filter(([x]) => x <= span[1]);
  const levels = status.target == null ? [] : [status.target];
  let { low, high, log: isLog, clipped } = lossRange([training, validation], span, levels, log);
  const hasBase = status.base != null && rows.n > 0 && status.base <= high + BASE_IN_SIGHT * (high - low);
  // with room for its label if it is the lowest line; the axis may be logarithmic
  const under = isLog ? status.base / (high / status.base) ** 0.2 : status.base - 0.2 * (high - status.base);
  if (hasBase) [low, high] = [status.base < low ? under : low, Math.max(high, status.base)];
  const isBaseTold = status.base != null && !clipped;
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  const above = isBaseTold ? (high - low) * REMARK_ROOM || pad : pad;
  const range = isLog ? [low / (high / low) ** 0.04, high * (high / low) ** (isBaseTold ? REMARK_ROOM : 0.04)] : [low - pad, high + above];
  const fewer = [];
  for (let i = 1; i < rows.n; i++) {
    const x = rows.at(i, xColumn);
    if (rows.at(i, WORKERS) < rows.at(i - 1, WORKERS) && x >= span[0] && x <= span[1]) fewer.push(x);
  }
  const x = { span, title: { step: "step", seconds: "seconds", dollars: "dollars spent" }[against], prefix: against === "dollars" ? "$" : "", column: xColumn };
  // dollars against dollars would be a straight line
  const xMoney = against === "dollars" ? { span: spanOf(TIME), title: "seconds", prefix: "", column: TIME } : x;
  const spent = line(SPENT, xMoney.column);
  const most = Math.max(1e-9, ...spent.y);
  const hasCap = status.budget != null;
  const isInSight = hasCap && status.budget <= CAP_IN_SIGHT * most;
  const lossLevels = [];
  if (status.target != null) lossLevels.push({ y: status.target, text: status.target_line, hue: "mut", dash: "5 3" });
  if (hasBase) lossLevels.push({ y: status.base, text: status.base_text, hue: "mut", dash: "2 3", isRight: true });
  const notes = hasValidation ? [["main", "validation"], ["train", "training"]] : [["main", "training"]];
  if (band.length > 1) notes.push(["band", "forecast, 80 %"]);
  if (earlier.length) notes.push(["earlier", earlier.length > 1 ? "earlier runs" : `run ${earlier[0].name}`]);
  return [
    {
      title: status.loss_title || "Loss", notes, x, hue: "blue", range, log: isLog, marks: [], levels: lossLevels, band,
      lines: [
        ...earlier.map(({ name, points: of }) => ({ name, style: "earlier", x: of.map((p) => p[["step", "seconds", "dollars"].indexOf(against)]), y: of.map((p) => p[3]) })),
        { ...training, style: hasValidation ? "train" : "main" }, ...(hasValidation ? [{ ...validation, style: "main" }] : []),
      ],
      dot: hasValidation ? { x: validation.x.at(-1), y: validation.y.at(-1) } : null,
      best: bestPoint(rows, status.best_step, xColumn, span),
      remark: clipped ? { text: `↑ up to ${short(clipped)}`, hue: "mut" } : status.base > range[1] ? { text: `↑ ${status.base_text}`, hue: "mut", isRight: true } : null,
      says: (i) => [[VALIDATION, "validation"], [LOSS, "training"]].map(([column, name]) => [name, rows.at(i, column)]).filter(([, v]) => Number.isFinite(v)).map(([name, v]) => `${name} ${v.toPrecision(4)}`),
    },
    {
      title: "Workers", notes: fewer.length ? [["mark", "removed"]] : [], lines: [{ ...workers, style: "stair" }], x,
      range: [0, Math.max(1, ...workers.y) * 1.12], hue: "orange", whole: true, marks: fewer, levels: [],
      says: (i) => [count(rows.at(i, WORKERS), "worker")],
    },
    {
      title: "Dollars", notes: [["area", "spent"], ["under", "servers"]], prefix: "$", x: xMoney, hue: "green", marks: [],
      range: [0, isInSight ? Math.max(most, status.budget) * 1.1 : most * 1.25],
      lines: [{ ...spent, style: "area" }, { ...line(SERVERS, xMoney.column), style: "under" }],
      levels: isInSight ? [{ y: status.budget, text: status.budget_text, hue: "red", dash: "6 3" }] : [],
      remark: hasCap && !isInSight ? { text: `↑ ${status.budget_text}`, hue: "red" } : null,
      says: (i) => [`$${rows.at(i, SPENT).toPrecision(4)}`, `servers $${rows.at(i, SERVERS).toPrecision(3)}`],
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
  const [low, high] = panel.range;
  if (!panel.log) return ticks(low, high).filter((v) => !panel.whole || Number.isInteger(v));
  if (high / low < 20) return ticks(low, high);
  return ticks(Math.log10(low), Math.log10(high)).filter(Number.isInteger).map((v) => 10 ** v);
}
