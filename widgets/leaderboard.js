// A sweep's live leaderboard: the drawing and the table that Python makes, and a button that stops the sweep.

const ASK_AGAIN_MS = 1500;

function render({ model, el }) {
  const root = Object.assign(document.createElement("div"), { className: "mlless-sweep" });
  const chart = Object.assign(document.createElement("div"), { className: "mlless-coordinates" });
  const table = document.createElement("div");
  const stop = Object.assign(document.createElement("button"), { type: "button", title: "Keeps what was found" });
  root.append(chart, table, stop);
  keepKeys(root);
  let timer = null;
  let isGone = false;

  const drawChart = () => (chart.innerHTML = model.get("chart"));
  const drawTable = () => {
    const left = table.querySelector(".mlless-scroll")?.scrollLeft ?? 0;
    const hadFocus = table.contains(document.activeElement);
    table.innerHTML = model.get("table");
    if (isGone && !model.get("is_over")) {
      const { text, words } = model.get("if_restarted");
      table.querySelector("b").textContent = text;
      for (const cell of table.querySelectorAll("td:last-child")) cell.textContent = words[cell.textContent] ?? cell.textContent;
    }
    const box = table.querySelector(".mlless-scroll");
    if (box) box.scrollLeft = left;
    if (hadFocus) root.focus({ preventScroll: true });
  };
  const drawStop = () => {
    if (isGone || model.get("is_stopping") || model.get("is_over")) clearInterval(timer);
    if (model.get("is_over") && document.activeElement === stop) root.focus({ preventScroll: true }); // as below
    stop.hidden = model.get("is_over");
    stop.disabled = isGone || model.get("is_stopping") || timer !== null;
    stop.textContent = isGone ? "The kernel was restarted" : stop.disabled ? "Stopping ..." : "Stop the sweep";
  };
  const draw = (isLost) => {
    isGone = isLost;
    drawTable();
    drawStop();
  };
  const presence = new Presence(model, () => !isGone && !model.get("is_over"), () => draw(true));
  const hear = () => {
    presence.hear();
    if (isGone) draw(false); // it is there after all
  };
  const onTable = () => {
    presence.hear();
    draw(false);
  };
  stop.onclick = () => {
    const send = () => presence.send({ cmd: "stop" });
    timer = setInterval(send, ASK_AGAIN_MS); // a message may be lost
    send();
    drawStop();
    root.focus({ preventScroll: true }); // a disabled button loses the keys to the notebook
  };
  const listeners = {
    "change:chart": drawChart,
    "change:table": onTable,
    "change:is_stopping": drawStop,
    "change:is_over": drawStop,
    "msg:custom": hear,
  };
  for (const [name, listener] of Object.entries(listeners)) model.on(name, listener);
  drawChart();
  draw(false);
  el.append(root);
  return () => {
    clearInterval(timer);
    presence.close();
    for (const [name, listener] of Object.entries(listeners)) model.off(name, listener);
  };
}

export default { render };
