// The lower part of a view: events, the strip of workers, the exchange. A part of the widget's one module.

const PARTS = {
  compute: { hue: "var(--blue)", word: "computing", meaning: "gradients and the optimiser's update" },
  exchange: { hue: "var(--orange)", word: "exchanging", meaning: "publishing the own update, reading and applying those of the others" },
  wait: { hue: "var(--grey)", word: "waiting", meaning: "for slower workers" },
};
/** What a worker without others does in place of the exchange. */
const ALONE = { word: "reporting", meaning: "telling the supervisor of the step and applying its update" };

const element = (tag, className, text) => Object.assign(document.createElement(tag), { className, textContent: text ?? "" });

function drawEvents({ events: box, eventsNote }, events) {
  if (box.shown === events) return;
  box.shown = events;
  setText(eventsNote, events.length > 1 ? "newest first" : "");
  box.replaceChildren(...events.flatMap(([time, text]) => [element("time", "", time), element("span", "", text)]));
  if (!events.length) box.replaceChildren(element("span", "mlless-muted", "Nothing yet."));
}

const MOST_LABELS = 16; // of a strip; of more columns, which are narrow, every few have their number
const FEW_LABELS = 8;

/** One column per worker, as high as its step takes: computing, exchanging, waiting. */
function drawStrip({ strip, stripNote }, entries, note) {
  setText(stripNote, note);
  const key = JSON.stringify(entries);
  if (strip.dataset.key === key) return;
  strip.dataset.key = key;
  const isNarrow = entries.length > MOST_LABELS;
  const every = isNarrow ? Math.ceil(entries.length / FEW_LABELS) : 1;
  strip.replaceChildren(
    ...entries.map(({ label, shares, kind, text, mark }, at) => {
      const worker = element("div", "mlless-worker");
      worker.dataset.kind = kind;
      worker.title = text;
      const bars = element("div", "mlless-bars");
      Object.keys(PARTS).forEach((name, i) => {
        const bar = element("i", "");
        bar.style.cssText = `height:${100 * shares[i]}%;background:${PARTS[name].hue}`;
        bars.append(bar);
      });
      // of neighbours that are alike the first one has the sign of all
      const isMarked = !isNarrow || entries[at - 1]?.mark !== mark;
      const number = isNarrow ? label.split("-")[0] : label;
      worker.append(element("b", "", isMarked ? mark : ""), bars, element("span", "", at % every ? "" : number));
      return worker;
    }),
  );
  strip.setAttribute("aria-label", entries.map(({ text }) => text).join(", "));
}

function drawExchange({ exchange: block, stepNote, parts, exchangeText }, exchange) {
  block.style.visibility = exchange ? "" : "hidden";
  if (!exchange) return;
  setText(stepNote, `a step takes ${exchange.step_text}, median of ${exchange.n_steps}`);
  setText(exchangeText, exchange.text);
  parts.replaceChildren(
    ...exchange.parts.map(([name, , text]) => {
      const { word, meaning } = exchange.is_alone && name === "exchange" ? ALONE : PARTS[name];
      const part = element("span", "mlless-part", `${word} ${text}`);
      part.title = meaning;
      part.style.setProperty("--part", PARTS[name].hue);
      return part;
    }),
  );
}

/** The legend of a chart, beside its title. */
function drawNotes(node, notes) {
  const key = notes.join();
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  node.replaceChildren(
    ...notes.map(([kind, text]) => {
      const note = element("span", "");
      note.append(element("i", `mlless-${kind}`), text);
      return note;
    }),
  );
}
