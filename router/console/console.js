// The console: one document, shown as a picture, as often as it comes.

import { chart, pointsOf, recall, remember } from "./charts.js";
import { openJob, openSlice, refreshDetails } from "./details.js";
import { askKey, counted, find, headers, keep, known, make, ms, percent, plain, rate, refused, span, whole } from "./parts.js";
import { drainWorker, openPin, place, returnWorker } from "./orders.js";
import { cancelJob, openObjective } from "./steer.js";

// Green, amber, red and violet are left out: they say good, unsettled, bad and lent.
const MODEL_COLOURS = [
  "#2f7ed8", "#c04a9b", "#1aa3b8", "#8a6547", "#5b6f8a", "#3d4fa8", "#d98ab8", "#86b6dc",
];

// Moves of the plan that are shown.
const MOVES = 12;

let latest;

function colour(state, model) {
  const place = state.models.findIndex((known) => known.name === model);
  return place < 0 ? "var(--faint)" : MODEL_COLOURS[place % MODEL_COLOURS.length];
}

function show(state) {
  latest = state;
  remember(state);
  head(state);
  fleet(state);
  keep(find("cards"), state.models, { name: (model) => model.name, draw: card, fill: (shown, model) => fillCard(state, shown, model) });
  plan(state);
  jobs(state);
  refusals(state);
  tenants(state);
  refreshDetails(state);
}

function head(state) {
  const [word, tone] = state.draining
    ? ["draining", "unsettled"]
    : state.ready
      ? ["ready", "good"]
      : ["not ready", "bad"];
  const health = find("health");
  if (health.textContent !== word) health.textContent = word;
  health.className = `pill ${tone}`;
  const { build, config } = state;
  const reload = config.last_reload_successful ? "" : ", the last reload was refused";
  find("build").textContent =
    `${build.version} (${build.revision}), up ${span(state.uptime_s)}, ` +
    `configuration ${config.generation}${reload}`;
  const problems = find("problems");
  problems.hidden = state.problems.length === 0;
  problems.replaceChildren(...state.problems.map((problem) => make("li", {}, problem)));
}

function fleet(state) {
  const lent = state.workers.some((worker) => worker.gpus.some((gpu) => gpu.slices.some((slice) => slice.job !== null)));
  find("legend").replaceChildren(
    ...state.models.map((model) =>
      make("li", { style: `--model: ${colour(state, model.name)}` }, model.name),
    ),
    lent ? make("li", { style: "--model: var(--loan)" }, "lent to a job") : "",
  );
  keep(find("workers"), state.workers, { name: (worker) => worker.name, draw: drawWorker, fill: (shown, worker) => fillWorker(state, shown, worker) });
}

// What stays of a worker: its name, and the way out of service and back.
function drawWorker({ name }) {
  const button = make("button", { type: "button" });
  button.addEventListener("click", () => {
    const drained = latest.workers.find((worker) => worker.name === name).drain !== null;
    return drained ? returnWorker(button, name) : drainWorker(name);
  });
  return make(
    "div",
    { class: "worker", "data-worker": name },
    make("header", {}, make("h3", {}, `worker ${name}`), make("p", { class: "pill" }), button),
    make("ul", { class: "holds", "aria-label": `What still holds ${name}` }),
    make("div", { class: "gpus" }),
  );
}

function fillWorker(state, shown, worker) {
  const { name, state: how, silent_s, leaving, drain } = worker;
  const put = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };
  const [words, tone] =
    how !== "connected"
      ? [`${how}, last heard ${span(silent_s)} ago`, "bad"]
      : drain
        ? [`${drain.state}, by ${drain.by}`, "unsettled"]
        : leaving
          ? ["leaving", "unsettled"]
          : ["in service", "good"];
  put(shown.querySelector(".pill"), words);
  shown.querySelector(".pill").className = `pill ${tone}`;
  const button = shown.querySelector("button");
  put(button, drain ? "Return to service" : "Take out");
  button.setAttribute("aria-label", drain ? `Return ${name} to service` : `Take ${name} out for maintenance`);
  shown.classList.toggle("drained", drain !== null);
  shown.querySelector(".holds").replaceChildren(...(drain?.holds ?? []).map((hold) => make("li", {}, hold)));
  keep(shown.querySelector(".gpus"), worker.gpus, { name: (gpu) => gpu.gpu, draw: drawGpu, fill: (shown, gpu) => fillGpu(state, worker, shown, gpu) });
}

function drawGpu({ gpu }) {
  const bar = make("div", { class: "bar", role: "list", "aria-label": `Slices of ${gpu}` });
  return make("div", { class: "gpu", "data-gpu": gpu }, make("p", { class: "facts-line" }), bar, make("p", { class: "bad" }));
}

function fillGpu(state, worker, shown, gpu) {
  const kind = gpu.source.startsWith("cpu:") ? `cores ${gpu.source.slice(4)}` : gpu.kind ?? gpu.source;
  const facts = [gpu.simulated ? `${kind} (simulated)` : kind];
  if (gpu.power_w !== null) facts.push(`${Math.round(gpu.power_w)} W`);
  if (gpu.temperature_c !== null) facts.push(`${gpu.temperature_c} °C`);
  const [line, bar, problem] = shown.children;
  line.replaceChildren(make("strong", {}, gpu.gpu), ` ${facts.join(", ")}`);
  bar.style.setProperty("--cells", gpu.memory_slices);
  // A slice made anew where another was is another.
  const name = (slice) => `${slice.slice} ${slice.profile}`;
  keep(bar, gpu.slices, { name, draw: drawSlice, fill: (shown, slice) => fillSlice(state, shown, slice, (model) => pinned(state, worker, gpu, slice, model)) });
  problem.textContent = gpu.problem ?? "";
  problem.hidden = !gpu.problem;
}

// The pin of a model on a slice, if there is one.
function pinned(state, worker, gpu, { position }, model) {
  const here = place({ worker: worker.name, gpu: /(\d+)$/.exec(gpu.gpu)[1], position });
  return state.pins.find((pin) => pin.model === model && place(pin) === here);
}

// What stays of a slice: its place, and the way to all that is known of it.
function drawSlice({ slice, profile, start, memory_slices }) {
  const button = make("button", { type: "button", class: "profile" }, profile);
  button.addEventListener("click", () => openSlice(latest, slice));
  return make(
    "div",
    {
      class: "slice",
      role: "listitem",
      "data-slice": slice,
      "data-profile": profile,
      style: `grid-column: ${start + 1} / span ${memory_slices}`,
    },
    button,
    make("div", { class: "tenants" }),
  );
}

function fillSlice(state, shown, slice, pinOf) {
  const word = ({ model, state: how }) => (pinOf(model) ? `${how}, pinned by ${pinOf(model).by}` : how);
  const told = slice.replicas.map((replica) => `${replica.model} ${word(replica)}`);
  const job = state.jobs.shown.find((own) => own.id === slice.job);
  if (slice.job !== null) told.push(`lent to job ${slice.job}${job ? `, ${job.name} ${job.state}` : ""}`);
  const words = told.length ? told.join(", ") : "idle";
  const reasons = slice.replicas.map((replica) => replica.reason).filter(Boolean);
  shown.title = [`${slice.slice} ${slice.profile}: ${words}`, ...reasons].join("\n");
  shown.setAttribute("aria-label", `${slice.profile} at ${slice.start}: ${words}`);
  shown.querySelector("button").setAttribute("aria-label", `Details of ${slice.slice}`);
  const inside = slice.replicas.map((replica) => {
    const style = `--model: ${colour(state, replica.model)}`;
    const own = make("div", { class: "replica", "data-model": replica.model, "data-state": replica.state, style }, replica.model);
    if (replica.state !== "ready") own.append(make("small", {}, replica.state));
    else if (pinOf(replica.model)) own.append(make("small", { class: "pin" }, "pinned"));
    return own;
  });
  if (slice.job !== null) {
    inside.push(make("div", { class: "loan", "data-job": slice.job }, job?.name ?? "lent", make("small", {}, `job ${slice.job}`)));
  }
  if (!told.length) inside.push(make("div", { class: "idle" }, "idle"));
  shown.querySelector(".tenants").replaceChildren(...inside);
}

// What stays of a card: its title, and the ways to another objective and another place.
function card({ name }) {
  const button = make("button", { type: "button", class: "objective", "aria-label": `Change the objective of ${name}` });
  button.addEventListener("click", () => openObjective(latest.models.find((model) => model.name === name)));
  const places = make("button", { type: "button", class: "place", "aria-label": `Pin or move ${name}` }, "Place");
  places.addEventListener("click", () => openPin(latest, name));
  return make(
    "article",
    { class: "card", "data-model": name },
    make("header", {}, make("h3", {}, name), make("div", {}, button, places)),
    make("div", { class: "body" }),
  );
}

function fillCard(state, shown, model) {
  shown.style.setProperty("--model", colour(state, model.name));
  const words = `${span(model.slo_ms / 1000)} for ${plain(model.slo_target * 100)} %`;
  const button = shown.querySelector("button.objective");
  if (button.textContent !== words) button.textContent = words;
  shown.querySelector(".body").replaceChildren(...body(model));
}

function body(model) {
  const { recent, dispatch, replicas } = model;
  const met = recent.attainment;
  const tone = met === null ? "faint" : met < model.slo_target ? "bad" : "good";
  const all = Object.values(replicas).reduce((sum, count) => sum + count, 0);
  const limit = Math.max(0, ...dispatch.limits.map((own) => own.rows));
  const rule = dispatch.limits.find((own) => own.rows === limit)?.set_by;
  const facts = [
    ["served/s", rate(recent.served_rps)],
    ["refused/s", rate(recent.refused_rps)],
    ["waiting", whole(dispatch.waiting)],
    ["oldest", span(dispatch.oldest_age_ms / 1000)],
    [rule ? `limit by ${rule}` : "limit", limit ? whole(limit) : "none"],
    ["ready", `${replicas.ready} of ${all}`],
  ];
  const points = pointsOf(model.name);
  const attained = points.map((point) => point.attainment);
  return [
    make(
      "p",
      { class: `met ${tone}` },
      met === null ? "no requests" : percent(met),
      make("small", {}, met === null ? "" : ` met, last ${span(recent.judged_s)}`),
    ),
    model.reason ? make("p", { class: "bad" }, model.reason) : "",
    make(
      "dl",
      { class: "facts" },
      ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
    ),
    latency(model),
    make(
      "div",
      { class: "charts" },
      chart("objective met", [attained], {
        low: Math.min(model.slo_target - 0.02, ...known(attained)),
        high: 1,
        mark: model.slo_target,
        words: percent,
      }),
      chart("served, refused", [
        points.map((point) => point.served_rps),
        points.map((point) => point.refused_rps),
      ]),
      chart("p99, last minute", [points.map((point) => point.p99_ms)], { mark: model.slo_ms, words: ms }),
      chart("waiting", [points.map((point) => point.waiting)], { words: whole }),
    ),
  ];
}

// How long answers took, beside the objective.
function latency({ latency, slo_ms, slo_target }) {
  const time = (value) => make("td", { class: value !== null && value > slo_ms ? "bad" : undefined }, value === null ? "–" : ms(value));
  const share = (value) => make("td", { class: value === null ? undefined : value < slo_target ? "bad" : "good" }, value === null ? "–" : percent(value));
  const row = (name, { p50_ms, p99_ms, in_time }) =>
    make("tr", {}, make("th", { scope: "row" }, name), time(p50_ms), time(p99_ms), share(in_time));
  const hour = latency.hour.over_s < 3600 ? `last ${span(latency.hour.over_s)}` : "last hour";
  const titles = ["latency", "p50", "p99", "in time"].map((title) => make("th", { scope: "col" }, title));
  return make(
    "table",
    { class: "latency" },
    make("thead", {}, make("tr", {}, ...titles)),
    make("tbody", {}, row("last minute", latency.minute), row(hour, latency.hour)),
  );
}

// What a forecast goes by, in words.
const DECIDED = {
  rate: "asked for now",
  rising: "it rises",
  queue: "requests wait",
  late: "answers are late",
  panic: "a sudden rise",
  floor: "the last half hour",
  daily: "this hour, other days",
  patience: "needed lately",
  new: "too soon to tell",
  idle: "nothing is asked",
};

// What each model is expected to be asked for beside what it can serve, what moved and what cannot.
function plan(state) {
  const { models, moves, refusals: refusing, gpus_used } = state.plan;
  const gpus = state.workers.reduce((sum, worker) => sum + worker.gpus.length, 0);
  find("plan-gpus").textContent = `${gpus_used} of ${counted(gpus, "GPU")} in use`;
  const rows = models.map(({ model, demand_rps, capacity_rps, limit, why }) => {
    const short = capacity_rps !== null && demand_rps > capacity_rps;
    const part = capacity_rps && why !== "new" ? Math.min(100, (100 * demand_rps) / capacity_rps) : 0;
    const bar = make("div", { class: "part", style: `--part: ${part}%; --model: ${short ? "var(--bad)" : colour(state, model)}`, role: "img", "aria-label": `${Math.round(part)} % of capacity` });
    // What is kept before anything is known is no demand.
    const cells = [why === "new" ? "not known yet" : rate(demand_rps), capacity_rps === null ? "not measured end to end" : limit === "router" ? `${rate(capacity_rps)} (the router's)` : rate(capacity_rps)];
    return make(
      "tr",
      { "data-model": model },
      make("th", { scope: "row" }, model),
      ...cells.map((cell, place) => make("td", { class: short ? "bad" : undefined, "data-title": ["demand/s", "capacity/s"][place] }, cell)),
      make("td", { class: "bar-cell", "data-title": "in use" }, bar),
      make("td", { class: "why", "data-title": "because" }, DECIDED[why] ?? why),
    );
  });
  find("demand").replaceChildren(...rows);
  find("plan-refusals").replaceChildren(...refusing.map((why) => make("li", {}, why)));
  const told = moves.slice(0, MOVES).map(({ at_s, what, why }) =>
    make("li", {}, make("span", { class: "faint" }, `${span(Math.max(0, state.uptime_s - at_s))} ago`), make("strong", {}, what), make("span", { class: "why" }, why)),
  );
  find("moves").replaceChildren(...(told.length ? told : [make("li", { class: "faint" }, "Nothing has moved.")]));
}

function jobs(state) {
  const { allow, shown } = state.jobs;
  find("jobs").hidden = !allow.length && !shown.length;
  find("job-form").hidden = !allow.length;
  find("job-allow").textContent = `Allowed programs: ${allow.join(", ")}.`;
  const names = state.tenants.slice(0, -1).map((tenant) => tenant.name);
  const choice = find("job-tenant");
  choice.parentElement.hidden = !names.length;
  if ([...choice.options].map((option) => option.value).join() !== names.join()) {
    choice.replaceChildren(...names.map((name) => make("option", {}, name)));
  }
  find("no-jobs").hidden = shown.length > 0;
  keep(find("job-rows"), shown, { name: (job) => job.id, draw: jobRow, fill: fillJob });
}

function jobRow({ id }) {
  const button = make("button", { type: "button", "aria-label": `Cancel job ${id}` }, "Cancel");
  button.addEventListener("click", () => cancelJob(button, latest.jobs.shown.find((job) => job.id === id)));
  const name = make("button", { type: "button", class: "open" });
  name.addEventListener("click", () => openJob(latest.jobs.shown.find((job) => job.id === id)));
  const cells = ["state", "progress", "slices", "why"].map((name) => make("td", { class: name, "data-title": name }));
  return make("tr", { "data-job": id }, make("th", { scope: "row" }, name), ...cells, make("td", { class: "act" }, button));
}

const OVER = ["done", "failed", "cancelled"];

function fillJob(row, job) {
  const put = (place, text) => {
    const cell = row.querySelector(place);
    if (cell.textContent !== text) cell.textContent = text;
  };
  put("th button", `${job.id} ${job.name}`);
  put(".state", job.state);
  put(".slices", String(job.slices));
  put(".why", job.reason);
  row.querySelector(".act button").hidden = OVER.includes(job.state);
  const { step, steps } = job.progress ?? {};
  put(".progress", step === undefined ? "no progress reported" : steps ? `${step} of ${steps}` : `step ${step}`);
  row.style.setProperty("--part", steps ? `${(100 * step) / steps}%` : "0%");
}

function refusals(state) {
  const reasons = Object.keys(state.models[0]?.totals.refusals ?? {});
  const [titles] = find("refusals").querySelectorAll("thead tr");
  titles.replaceChildren(
    ...["model", ...reasons].map((title) => make("th", { scope: "col" }, title.replace("_", " "))),
  );
  const name = (reason) => reason.replace("_", " ");
  const rows = state.models.map((model) => row(model.name, reasons.map((reason) => [name(reason), model.totals.refusals[reason]])));
  find("refusals").querySelector("tbody").replaceChildren(...rows);
}

function tenants(state) {
  const rows = state.tenants.map(({ name, rate_rps, totals }) => {
    const { served, refused, quota, abandoned, failed } = totals;
    const allowed = rate_rps === null ? "no limit" : rate(rate_rps);
    return row(name, Object.entries({ "rows/s allowed": allowed, served, refused, "over its rate": quota, abandoned, failed }));
  });
  find("tenants").querySelector("tbody").replaceChildren(...rows);
}

function row(name, cells) {
  const words = (cell) => (typeof cell === "number" ? whole(cell) : cell);
  const shown = cells.map(([title, cell]) => make("td", { class: cell === 0 ? "zero" : undefined, "data-title": title }, words(cell)));
  return make("tr", {}, make("th", { scope: "row" }, name), ...shown);
}

// Reads events until the stream ends.
async function follow() {
  const reply = await fetch("admin/v1/events", { headers: headers(), cache: "no-store" });
  if (reply.status === 401 || reply.status === 403) {
    const { error } = await reply.json();
    await askKey(refused(error));
    return;
  }
  if (!reply.ok) throw new Error(`the router answered ${reply.status}`);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) take(event);
  }
}

function take(event) {
  const field = (name) =>
    event.split("\n").filter((line) => line.startsWith(`${name}: `)).map((line) => line.slice(name.length + 2)).join("\n");
  const data = JSON.parse(field("data"));
  if (field("event") === "history") {
    for (const [model, points] of Object.entries(data)) recall(model, points);
    return;
  }
  find("stale").hidden = true;
  show(data);
}

async function live() {
  for (;;) {
    try {
      await follow();
    } catch (error) {
      console.warn(error);
    }
    find("stale").hidden = false;
    await new Promise((wake) => setTimeout(wake, 1000));
  }
}

live();
