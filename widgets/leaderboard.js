// A sweep's live leaderboard: the table that leaderboard.py makes, and a button that stops the sweep.

const ASK_AGAIN_MS = 1500;

function render({ model, el }) {
  const root = Object.assign(document.createElement("div"), { className: "mlless-sweep" });
  const table = document.createElement("div");
  const stop = Object.assign(document.createElement("button"), { type: "button", title: "Keeps what was found" });
  root.append(table, stop);
  keepKeys(root);
  let timer = null;
  let isGone = false;

  const drawTable = () => {
    const left = table.querySelector(".mlless-scroll")?.scrollLeft ?? 0;
    const hadFocus = table.contains(document.activeElement);
    table.innerHTML = model.get("table");
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
  const onRestart = () => {
    isGone = true;
    drawStop();
  };
  stop.onclick = () => {
    const send = () => model.send({ cmd: "stop" });
    timer = setInterval(send, ASK_AGAIN_MS); // a message may be lost
    send();
    drawStop();
    root.focus({ preventScroll: true }); // a disabled button loses the keys to the notebook
  };
  model.on("change:table", drawTable);
  model.on("change:is_stopping", drawStop);
  model.on("change:is_over", drawStop);
  model.on("comm_live_update", onRestart);
  drawTable();
  drawStop();
  el.append(root);
  return () => {
    clearInterval(timer);
    model.off("change:table", drawTable);
    model.off("change:is_stopping", drawStop);
    model.off("change:is_over", drawStop);
    model.off("comm_live_update", onRestart);
  };
}

export default { render };
