// What is behind a slice or a job of the picture: all that the router knows of it, live while it is open.

import { ask, bytes, find, make, ms, plain, span, wrong } from "./parts.js";

const dialog = find("detail");
const log = find("detail-log");
// At most so much of a rank's output is kept on the page.
const LOG_CHARS = 65536;

// What refreshes the open dialog, or nothing.
let refresh;

function open(title, fill) {
  find("detail-title").textContent = title;
  find("detail-wrong").hidden = true;
  find("detail-facts").replaceChildren();
  find("detail-more").replaceChildren();
  log.hidden = true;
  log.textContent = "";
  refresh = fill;
  if (!dialog.open) dialog.showModal();
}

dialog.addEventListener("close", () => {
  refresh = undefined;
});

// A new state has come.
export function refreshDetails(state) {
  if (dialog.open) refresh?.(state);
}

function facts(list) {
  const shown = list.filter(([, value]) => value !== null && value !== undefined);
  find("detail-facts").replaceChildren(
    ...shown.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))),
  );
}

function table(titles, rows) {
  const cell = (title) => make("th", { scope: "col" }, title);
  const row = ([first, ...rest]) =>
    make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((text, place) => make("td", { "data-title": titles[place + 1] }, String(text))));
  return make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...titles.map(cell))), make("tbody", {}, ...rows.map(row))));
}

export function openSlice(state, name) {
  const fill = (now) => {
    const gpus = now.workers.flatMap((worker) => worker.gpus);
    const gpu = gpus.find((own) => own.slices.some((slice) => slice.slice === name));
    const slice = gpu?.slices.find((own) => own.slice === name);
    if (!slice) {
      wrong(find("detail-wrong"), { message: "This slice no longer exists: its GPU was reshaped, or its worker left." });
      return;
    }
    facts([
      ["GPU", `${gpu.gpu}, ${gpu.kind ?? gpu.source}`],
      ["position", slice.position],
      ["memory", slice.memory_bytes === null ? null : bytes(slice.memory_bytes)],
      ["device", slice.uuid],
      ["lent to", slice.job === null ? null : `job ${slice.job}`],
    ]);
    const processes = slice.lanes.map((lane) => [lane.lane, lane.pid ?? "none", lane.restarts, span(lane.busy_s)]);
    const replicas = slice.replicas.map((replica) => {
      const limit = now.models
        .find((model) => model.name === replica.model)
        ?.dispatch.limits.find((own) => own.slice === slice.slice);
      return [
        replica.model,
        replica.state,
        replica.memory_bytes === null ? "unknown" : bytes(replica.memory_bytes),
        replica.load_ms === null ? "unknown" : ms(replica.load_ms),
        limit ? `${limit.rows} rows` : "none",
        limit ? `${plain(Math.round(limit.slowdown * 100) / 100)} times` : "unknown",
        replica.reason ?? "",
      ];
    });
    find("detail-more").replaceChildren(
      replicas.length
        ? table(["replica", "state", "memory", "loaded in", "batch limit", "slowdown", "why"], replicas)
        : make("p", { class: "faint" }, "No replica is on this slice."),
      processes.length ? table(["process", "pid", "restarts", "busy for"], processes) : "",
    );
  };
  open(`Slice ${name}`, fill);
  fill(state);
}

export function openJob({ id, name }) {
  let next;
  let asking = false;
  const fill = async () => {
    if (asking) return;
    asking = true;
    try {
      const job = await ask("GET", `admin/v1/jobs/${id}`);
      const from = next === undefined ? "" : `&from=${next}`;
      const page = await ask("GET", `admin/v1/jobs/${id}/logs?rank=0${from}`);
      if (refresh !== fill) return;
      next = page.next;
      show(job, page.text);
      find("detail-wrong").hidden = true;
    } catch (error) {
      if (refresh === fill) wrong(find("detail-wrong"), error);
    } finally {
      asking = false;
    }
  };
  open(`Job ${id}, ${name}`, fill);
  fill();
}

function show(job, text) {
  const { step, steps, checkpoint } = job.progress ?? {};
  facts([
    ["command", job.argv.join(" ")],
    ["state", job.state],
    ["why", job.reason],
    ["tenant", job.tenant],
    ["slices wanted", job.slices_wanted.join(" to ")],
    ["progress", step === undefined ? null : `step ${step}${steps ? ` of ${steps}` : ""}`],
    ["last checkpoint", checkpoint === undefined || checkpoint === null ? null : `step ${checkpoint}`],
    ["started", `${job.starts} times`],
    ["failed", `${job.failures[0]} of at most ${job.failures[1]} times`],
    ["ran for", span(job.ran_s)],
    ["GPU time", span(job.attained_gpu_s)],
    ["GPU time lost", span(job.lost_gpu_s)],
  ]);
  const steps_ = job.history.map((one) => make("li", {}, `${one.state}: ${one.reason}`));
  find("detail-more").replaceChildren(steps_.length ? make("ol", { class: "past", "aria-label": "What it did before" }, ...steps_) : "");
  const follows = log.hidden || log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  log.hidden = false;
  if (text) log.textContent = (log.textContent + text).slice(-LOG_CHARS);
  if (!log.textContent) log.dataset.empty = "Rank 0 has printed nothing.";
  if (follows) log.scrollTop = log.scrollHeight;
}
