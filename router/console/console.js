// The console: one document, shown as a picture, as often as it comes.

const MODEL_COLOURS = [
  "#2f7ed8", "#e08a1e", "#2a9d6f", "#b5489a", "#5aa9c9", "#c8553d", "#8a7bd1", "#8f8f2b",
];
const KEY = "sluice-admin-key";
// One point of a chart stands for this long, and so many are kept.
const POINT_S = 5;
const POINTS = 60;

const find = (id) => document.getElementById(id);
const history = new Map();
let key = sessionStorage.getItem(KEY) ?? "";

// Elements, made without ever reading text as markup.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "title"].includes(tag);
  const made = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const headers = () => (key ? { authorization: `Bearer ${key}` } : {});

// Numbers and times as people read them.
function rate(value) {
  return value >= 100 || value === 0 ? value.toFixed(0) : value.toFixed(1);
}

function span(seconds) {
  const whole = Math.floor(seconds);
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (whole < 60) return `${Math.round(seconds * 10) / 10} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor(whole / 60) % 60} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

const percent = (share) => `${(share * 100).toFixed(2)} %`;

function colour(state, model) {
  const place = state.models.findIndex((known) => known.name === model);
  return place < 0 ? "var(--faint)" : MODEL_COLOURS[place % MODEL_COLOURS.length];
}

function show(state) {
  remember(state);
  head(state);
  fleet(state);
  find("cards").replaceChildren(...state.models.map((model) => card(state, model)));
  refusals(state);
  tenants(state);
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
  find("legend").replaceChildren(
    ...state.models.map((model) =>
      make("li", { style: `--model: ${colour(state, model.name)}` }, model.name),
    ),
  );
  const quiet = state.workers.filter((worker) => worker.state !== "connected");
  find("workers").replaceChildren(
    ...quiet.map(({ name, state: how, silent_s }) => make("li", {}, `worker ${name} is ${how}, last heard ${span(silent_s)} ago`)),
  );
  const gpus = state.workers.flatMap((worker) => worker.gpus);
  find("gpus").replaceChildren(...gpus.map((gpu) => picture(state, gpu)));
}

function picture(state, gpu) {
  const bar = make("div", {
    class: "bar",
    role: "list",
    style: `--cells: ${gpu.memory_slices}`,
    "aria-label": `Slices of ${gpu.gpu}`,
  });
  bar.append(...gpu.slices.map((slice) => block(state, slice)));
  const facts = [gpu.kind ?? gpu.source];
  if (gpu.power_w !== null) facts.push(`${Math.round(gpu.power_w)} W`);
  if (gpu.temperature_c !== null) facts.push(`${gpu.temperature_c} °C`);
  const name = make("p", {}, make("strong", {}, gpu.gpu), ` ${facts.join(", ")}`);
  const problem = gpu.problem ? make("p", { class: "bad" }, gpu.problem) : "";
  return make("div", { class: "gpu", "data-gpu": gpu.gpu }, name, bar, problem);
}

function block(state, slice) {
  const told = slice.replicas.map((replica) => `${replica.model} ${replica.state}`);
  const words = told.length ? told.join(", ") : "idle";
  const inside = make("div", { class: "tenants" });
  for (const replica of slice.replicas) {
    const shown = make(
      "div",
      {
        class: "replica",
        "data-model": replica.model,
        "data-state": replica.state,
        style: `--model: ${colour(state, replica.model)}`,
      },
      replica.model,
    );
    if (replica.state !== "ready") shown.append(make("small", {}, replica.state));
    inside.append(shown);
  }
  if (!slice.replicas.length) inside.append(make("div", { class: "idle" }, "idle"));
  const reasons = slice.replicas.map((replica) => replica.reason).filter(Boolean);
  return make(
    "div",
    {
      class: "slice",
      role: "listitem",
      "data-slice": slice.slice,
      "data-profile": slice.profile,
      style: `grid-column: ${slice.start + 1} / span ${slice.memory_slices}`,
      title: [`${slice.slice} ${slice.profile}: ${words}`, ...reasons].join("\n"),
      "aria-label": `${slice.profile} at ${slice.start}: ${words}`,
    },
    make("div", { class: "profile" }, slice.profile),
    inside,
  );
}

function card(state, model) {
  const { recent, dispatch, replicas } = model;
  const met = recent.attainment;
  const tone = met === null ? "faint" : met < model.slo_target ? "bad" : "good";
  const all = Object.values(replicas).reduce((sum, count) => sum + count, 0);
  const limit = Math.max(0, ...dispatch.limits.map((own) => own.rows));
  const rule = dispatch.limits.find((own) => own.rows === limit)?.set_by;
  const facts = [
    ["served/s", rate(recent.served_rps)],
    ["refused/s", rate(recent.refused_rps)],
    ["waiting", String(dispatch.waiting)],
    ["oldest", span(dispatch.oldest_age_ms / 1000)],
    [rule ? `limit by ${rule}` : "limit", limit ? String(limit) : "none"],
    ["ready", `${replicas.ready} of ${all}`],
  ];
  const points = history.get(model.name) ?? [];
  return make(
    "article",
    { class: "card", "data-model": model.name, style: `--model: ${colour(state, model.name)}` },
    make(
      "header",
      {},
      make("h3", {}, model.name),
      make("span", { class: "faint" }, `${span(model.slo_ms / 1000)} for ${model.slo_target * 100} %`),
    ),
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
      ...facts.map(([name, value]) =>
        make("div", {}, make("dt", {}, name), make("dd", {}, value)),
      ),
    ),
    make(
      "div",
      { class: "charts" },
      chart("objective met", [points.map((point) => point.attainment)], {
        low: Math.min(model.slo_target - 0.02, ...known(points.map((point) => point.attainment))),
        high: 1,
        mark: model.slo_target,
        words: percent,
      }),
      chart("served, refused", [
        points.map((point) => point.served_rps),
        points.map((point) => point.refused_rps),
      ]),
      chart("waiting", [points.map((point) => point.waiting)]),
    ),
  );
}

const known = (values) => values.filter((value) => value !== null && value !== undefined);

// A line over the last minutes, the newest at the right.
function chart(name, lines, { low = 0, high, mark, words = rate } = {}) {
  const all = known(lines.flat());
  const top = high ?? Math.max(1, ...all);
  const bottom = Math.min(low, top);
  const scale = top > bottom ? 36 / (top - bottom) : 0;
  const y = (value) => 38 - (Math.max(bottom, Math.min(top, value)) - bottom) * scale;
  const svg = make("svg", { class: "chart", viewBox: `0 0 ${POINTS - 1} 40`, preserveAspectRatio: "none", role: "img" });
  const last = lines.map((line) => known(line).at(-1)).filter((value) => value !== undefined);
  svg.append(make("title", {}, `${name}: ${last.length ? last.map(words).join(", ") : "nothing yet"}`));
  if (mark !== undefined) {
    svg.append(make("line", { x1: 0, x2: POINTS - 1, y1: y(mark), y2: y(mark) }));
  }
  lines.forEach((line, place) => {
    let path = "";
    let drawing = false;
    line.forEach((value, index) => {
      if (value === null || value === undefined) {
        drawing = false;
        return;
      }
      path += `${drawing ? "L" : "M"}${POINTS - line.length + index} ${y(value).toFixed(2)}`;
      drawing = true;
    });
    if (path) svg.append(make("path", { d: path, class: place ? "second" : "first" }));
  });
  return make("figure", {}, make("figcaption", {}, name), svg);
}

// Adds the present to the charts; a point is kept once it has stood long enough.
function remember(state) {
  for (const model of state.models) {
    const points = history.get(model.name) ?? [];
    const last = points.at(-1);
    if (last && state.uptime_s - last.from_s < POINT_S) points.pop();
    points.push({
      from_s: last && state.uptime_s - last.from_s < POINT_S ? last.from_s : state.uptime_s,
      attainment: model.recent.attainment,
      served_rps: model.recent.served_rps,
      refused_rps: model.recent.refused_rps,
      waiting: model.dispatch.waiting,
    });
    history.set(model.name, points.slice(-POINTS));
  }
}

function refusals(state) {
  const reasons = Object.keys(state.models[0]?.totals.refusals ?? {});
  const [titles] = find("refusals").querySelectorAll("thead tr");
  titles.replaceChildren(
    ...["model", ...reasons].map((title) => make("th", { scope: "col" }, title.replace("_", " "))),
  );
  const rows = state.models.map((model) => row(model.name, reasons.map((reason) => model.totals.refusals[reason])));
  find("refusals").querySelector("tbody").replaceChildren(...rows);
}

function tenants(state) {
  const rows = state.tenants.map(({ name, rate_rps, totals }) => {
    const { served, refused, quota, abandoned, failed } = totals;
    return row(name, [rate_rps === null ? "no limit" : rate(rate_rps), served, refused, quota, abandoned, failed]);
  });
  find("tenants").querySelector("tbody").replaceChildren(...rows);
}

function row(name, cells) {
  const shown = cells.map((cell) => make("td", { class: cell === 0 ? "zero" : undefined }, cell.toLocaleString("en")));
  return make("tr", {}, make("th", { scope: "row" }, name), ...shown);
}

// Reads events until the stream ends.
async function follow() {
  const reply = await fetch("admin/v1/events", { headers: headers(), cache: "no-store" });
  if (reply.status === 401 || reply.status === 403) {
    const { error } = await reply.json();
    await askKey(key ? error : "");
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
    for (const [model, points] of Object.entries(data)) history.set(model, points);
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

// A dialog's answer: the value of the button that closed it.
function answer(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue), { once: true }));
}

async function askKey(why) {
  const wrong = find("key-wrong");
  wrong.hidden = !why;
  wrong.textContent = why;
  find("key-value").value = "";
  if ((await answer(find("ask-key"))) !== "use") return;
  key = find("key-value").value;
  sessionStorage.setItem(KEY, key);
}

async function tell(title, lines) {
  find("told-title").textContent = title;
  find("told-lines").replaceChildren(...lines.map((line) => make("li", {}, line)));
  await answer(find("told"));
}

async function act(button, path, done) {
  button.disabled = true;
  try {
    const reply = await fetch(path, { method: "POST", headers: headers() });
    const body = await reply.json();
    if (reply.ok) await done(body);
    else await tell(body.error, body.problems ?? []);
  } catch (error) {
    await tell("The router could not be asked", [String(error)]);
  } finally {
    button.disabled = false;
  }
}

find("reload").addEventListener("click", (event) =>
  act(event.currentTarget, "admin/v1/reload", async ({ changes }) => {
    const lines = changes.map(({ path, old, new: to }) => `${path}: ${old ?? "none"} to ${to ?? "none"}`);
    await tell(lines.length ? "The new configuration is in force" : "Nothing has changed", lines);
  }),
);
find("drain").addEventListener("click", async (event) => {
  const button = event.currentTarget;
  if ((await answer(find("ask-drain"))) === "drain") {
    await act(button, "admin/v1/drain", ({ delay_s }) =>
      tell("Draining", [`It accepts requests for ${delay_s} s more.`]),
    );
  }
});
find("key").addEventListener("click", () => askKey(""));
live();
