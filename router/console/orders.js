// What an operator wants of the fleet: workers drained, replicas pinned or moved. What that leads to is
// shown before it can be done.

import { ask, find, make, rate, tell, wrong } from "./parts.js";

const list = (lines, kind) => make("ul", { class: kind }, ...lines.map((line) => make("li", {}, line)));
export const place = ({ worker, gpu, position }) => `${worker} gpu${gpu} ${position}`;
const same = (one, other) => place(one) === place(other);
const path = (...parts) => `admin/v1/${parts.map(encodeURIComponent).join("/")}`;

function model({ model, demand_rps, before, after }) {
  const serves = ({ capacity_rps }) => (capacity_rps === null ? "unknown" : rate(capacity_rps));
  const short = after.capacity_rps !== null && after.capacity_rps < demand_rps;
  const cells = [rate(demand_rps), `${before.replicas} → ${after.replicas}`, `${serves(before)} → ${serves(after)}`];
  return make("tr", {}, make("th", { scope: "row" }, model), ...cells.map((cell) => make("td", { class: short ? "bad" : undefined }, cell)));
}

// What an order would lead to.
function consequence(effect) {
  if (!effect) return [make("p", {}, "The planner has not decided anything yet.")];
  const { after, models, lacking } = effect;
  const moves = after.moves.map(({ what, why }) => `${what}: ${why}`);
  const titles = ["model", "demand/s", "replicas", "capacity/s"].map((title) => make("th", { scope: "col" }, title));
  const shown = [
    make("h3", {}, moves.length ? `The planner would start ${after.starts} and stop ${after.stops}` : "The planner would move nothing"),
    list(moves),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...titles)), make("tbody", {}, ...models.map(model)))),
  ];
  if (lacking.length) shown.unshift(make("h3", { class: "bad" }, "The fleet cannot hold what is asked of it then"), list(lacking, "bad"));
  return shown;
}

// A dialog that shows what its order leads to, and only then gives it. `asked` is the order as the
// fields have it, `done` what is told once it stands.
function steering(name, { asked, done }) {
  const dialog = find(name);
  const [effect, problem, apply] = ["effect", "wrong", "apply"].map((part) => find(`${name}-${part}`));
  const unseen = () => {
    apply.disabled = true;
    problem.hidden = true;
    effect.replaceChildren();
  };
  const give = async (apply) => {
    const [where, body] = asked();
    return ask("POST", where, { ...body, apply });
  };
  const preview = async () => {
    unseen();
    const before = JSON.stringify(asked());
    try {
      const told = await give(false);
      if (JSON.stringify(asked()) !== before || !dialog.open) return;
      effect.replaceChildren(...consequence(told.effect));
      apply.disabled = false;
    } catch (error) {
      wrong(problem, error);
    }
  };
  dialog.querySelector("form").addEventListener("submit", (event) => {
    if (event.submitter?.value === "cancel") return;
    event.preventDefault();
    preview();
  });
  dialog.addEventListener("input", unseen);
  apply.addEventListener("click", async () => {
    apply.disabled = true;
    try {
      await give(true);
      dialog.close();
      await tell(...done());
    } catch (error) {
      wrong(problem, error);
    }
  });
  return { dialog, preview, unseen };
}

// Draining a worker, and back.

const draining = steering("drain-worker", {
  asked: () => [path("workers", draining.dialog.dataset.worker, "drain"), {}],
  done: () => [`${draining.dialog.dataset.worker} is being drained`, ["What still holds it is told beside its name. Return it to service when the work is done."]],
});

export function drainWorker(name) {
  draining.dialog.dataset.worker = name;
  find("drain-worker-title").textContent = `Take ${name} out for maintenance?`;
  draining.dialog.showModal();
  draining.preview();
}

export async function returnWorker(button, name) {
  button.disabled = true;
  try {
    await ask("DELETE", path("workers", name, "drain"));
    await tell(`${name} is in service again`, ["Replicas and jobs may be put there, and pins there hold again."]);
  } catch (error) {
    await tell(error.message, error.problems ?? []);
  } finally {
    button.disabled = false;
  }
}

// Pinning and moving.

const fields = { gpu: find("pin-gpu"), position: find("pin-position"), from: find("pin-from") };
let shown;

const pinning = steering("pin", {
  asked: () => {
    const from = fields.from.value ? JSON.parse(fields.from.value) : undefined;
    return [path("models", pinning.dialog.dataset.model, "pin"), { ...JSON.parse(fields.gpu.value), position: fields.position.value.trim(), from }];
  },
  done: () => [`${pinning.dialog.dataset.model} is pinned to ${fields.position.value}`, ["It stays there until it is unpinned. The new replica is ready before an old one leaves."]],
});

// The GPUs of a state, each with its worker's name and its index there.
function gpus(state) {
  return state.workers.flatMap((worker) =>
    worker.gpus.map((gpu) => ({ seat: { worker: worker.name, gpu: Number(/(\d+)$/.exec(gpu.gpu)[1]) }, drained: worker.drain !== null, ...gpu })),
  );
}

// Where a model's replicas are.
function seats(state, name) {
  return gpus(state).flatMap(({ seat, slices }) =>
    slices.filter((slice) => slice.replicas.some((replica) => replica.model === name)).map(({ position }) => ({ ...seat, position })),
  );
}

function positions() {
  const chosen = gpus(shown).find(({ seat }) => JSON.stringify(seat) === fields.gpu.value);
  find("pin-positions").replaceChildren(...(chosen?.slices ?? []).map(({ position }) => make("option", { value: position })));
}

function choose({ worker, gpu, position }) {
  fields.gpu.value = JSON.stringify({ worker, gpu });
  fields.position.value = position;
  positions();
}

async function unpin(name, { worker, gpu, position }) {
  try {
    const query = new URLSearchParams({ worker, gpu, position });
    await ask("DELETE", `${path("models", name, "pin")}?${query}`);
    pinning.dialog.close();
    await tell(`${name} may be anywhere again`, ["It stays where it is until the planner has a reason to move it."]);
  } catch (error) {
    wrong(find("pin-wrong"), error);
  }
}

function seatRow(name, seat, pin) {
  const button = make("button", { type: "button", "aria-label": `${pin ? "Unpin" : "Keep"} ${name} on ${place(seat)}` }, pin ? "Unpin" : "Keep it here");
  button.addEventListener("click", () => {
    if (pin) return unpin(name, seat);
    choose(seat);
    fields.from.value = "";
    return pinning.preview();
  });
  const words = pin ? `${place(seat)}, pinned by ${pin.by}: ${pin.why ?? pin.state}` : place(seat);
  return make("li", { class: "seat" }, make("span", {}, words), button);
}

export function openPin(state, name) {
  shown = state;
  const here = seats(state, name);
  const pins = state.pins.filter((pin) => pin.model === name);
  const absent = pins.filter((pin) => !here.some((seat) => same(seat, pin)));
  const rows = [...here, ...absent].map((seat) => seatRow(name, seat, pins.find((pin) => same(pin, seat))));
  pinning.dialog.dataset.model = name;
  find("pin-title").textContent = `Where ${name} is`;
  find("pin-seats").replaceChildren(...(rows.length ? rows : [make("li", {}, "Nowhere yet.")]));
  fields.gpu.replaceChildren(
    ...gpus(state).map(({ seat, kind, source, drained }) =>
      make("option", { value: JSON.stringify(seat) }, `${seat.worker} gpu${seat.gpu}, ${kind ?? source}${drained ? ", drained" : ""}`),
    ),
  );
  fields.from.replaceChildren(
    make("option", { value: "" }, "beside those there are"),
    ...here.map((seat) => make("option", { value: JSON.stringify(seat) }, `instead of ${place(seat)}`)),
  );
  fields.position.value = "";
  positions();
  pinning.unseen();
  pinning.dialog.showModal();
}
fields.gpu.addEventListener("change", positions);
