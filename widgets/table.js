// The steps as a table. A part of the widget's one module.

const MOST_LINES = 200;

/** The table of a run's steps, newest first. */
function tableOf({ rows, status }) {
  const cell = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const line = (tag, texts) => {
    const tr = document.createElement("tr");
    tr.append(...texts.map((text) => cell(tag, text)));
    return tr;
  };
  const number = (value, digits) => (Number.isNaN(value) ? "" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
  const loss = (value) => (Math.abs(value) >= 1000 ? value.toPrecision(4) : number(value, 4));
  const lines = [];
  for (const i of tableRows(rows, status.best_step)) {
    const at = (column) => rows.at(i, column);
    const tr = line("td", [
      number(at(STEP), 0), number(at(EPOCH), 2), number(at(TIME), 1), loss(at(LOSS)), loss(at(VALIDATION)), number(at(WORKERS), 0), `$${number(at(SPENT), 6)}`, `$${number(at(SERVERS), 6)}`,
    ]);
    tr.classList.toggle("mlless-best", at(STEP) === status.best_step);
    lines.push(tr);
  }
  const table = document.createElement("table");
  const [head, body] = [document.createElement("thead"), document.createElement("tbody")];
  head.append(line("th", ["step", "epoch", "seconds", `training ${status.metric}`, `validation ${status.metric}`, "workers", "spent", "of which servers"]));
  body.append(...lines);
  table.append(cell("caption", `${lines.length.toLocaleString("en")} of ${count(rows.next, "step")}, newest first`), head, body);
  return table;
}

/** The rows of the table, newest first: all rows of a short run; of a long run the newest, the best and evenly spaced evaluated ones. */
function tableRows(rows, bestStep) {
  const all = [...Array(rows.n).keys()].reverse();
  if (all.length <= MOST_LINES) return all;
  const evaluated = all.filter((i) => !Number.isNaN(rows.at(i, VALIDATION)));
  // few evaluations would hide the training steps between them
  const listed = evaluated.length > MOST_LINES / 10 ? evaluated : all;
  const every = Math.ceil(listed.length / MOST_LINES);
  const best = all.filter((i) => rows.at(i, STEP) === bestStep);
  return [...new Set([all[0], ...best, ...listed.filter((_, k) => k % every === 0)])].sort((a, b) => b - a);
}
