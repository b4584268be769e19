// What an operator does from the page: reload, drain, another objective, jobs.

import { answer, ask, askKey, changed, counted, find, make, plain, rate, tell, wrong } from "./parts.js";

// Does something with the button out of reach meanwhile, and tells what went wrong.
async function act(button, work) {
  button.disabled = true;
  try {
    await work();
  } catch (error) {
    await tell(error.message, error.problems ?? []);
  } finally {
    button.disabled = false;
  }
}

find("reload").addEventListener("click", ({ currentTarget }) =>
  act(currentTarget, async () => {
    const { changes } = await ask("POST", "admin/v1/reload");
    const lines = changes.map(changed);
    await tell(lines.length ? "The new configuration is in force" : "Nothing has changed", lines);
  }),
);
find("drain").addEventListener("click", async ({ currentTarget }) => {
  if ((await answer(find("ask-drain"))) !== "drain") return;
  await act(currentTarget, async () => {
    const { delay_s } = await ask("POST", "admin/v1/drain");
    await tell("Draining", [`It accepts requests for ${delay_s} s more.`]);
  });
});
find("key").addEventListener("click", () => askKey(""));

// Another objective: what it would do is shown before it can be put in force.

const objective = find("objective");
const fields = { slo_ms: find("objective-ms"), percent: find("objective-percent") };

function asked(apply) {
  const slo_target = Number(plain(Number(fields.percent.value) / 100));
  return { model: objective.dataset.model, slo_ms: Number(fields.slo_ms.value), slo_target, apply };
}

function unseen() {
  find("objective-apply").disabled = true;
  find("objective-effect").replaceChildren();
  find("objective-wrong").hidden = true;
}

export function openObjective({ name, slo_ms, slo_target }) {
  objective.dataset.model = name;
  find("objective-title").textContent = `Objective of ${name}`;
  fields.slo_ms.value = plain(slo_ms);
  fields.percent.value = plain(slo_target * 100);
  unseen();
  objective.showModal();
}

function prospect(title, { gpus_used, replicas, capacity_rps }) {
  const cells = [counted(replicas, "replica"), counted(gpus_used, "GPU"), capacity_rps === null ? "unknown" : `${rate(capacity_rps)} rows/s`];
  return make("tr", {}, make("th", { scope: "row" }, title), ...cells.map((cell) => make("td", {}, cell)));
}

function effect({ changes, effect }) {
  const list = (lines) => make("ul", {}, ...lines.map((line) => make("li", {}, line)));
  const shown = [list(changes.length ? changes.map(changed) : ["Nothing would change."])];
  if (effect) {
    const { before, after } = effect;
    const moves = after.moves.map(({ what, why }) => `${what}: ${why}`);
    shown.push(
      make("table", {}, make("tbody", {}, prospect("as it is", before), prospect("with it", after))),
      make("h3", {}, moves.length ? `The planner would start ${after.starts} and stop ${after.stops}` : "The planner would move nothing"),
      list(moves),
    );
    if (after.refusals.length) shown.push(make("h3", {}, "It could not do all"), list(after.refusals));
  } else {
    shown.push(make("p", {}, "The planner has not decided anything about this model yet."));
  }
  find("objective-effect").replaceChildren(...shown);
}

for (const field of Object.values(fields)) field.addEventListener("input", unseen);
objective.querySelector("form").addEventListener("submit", async (event) => {
  if (event.submitter?.value === "cancel") return;
  event.preventDefault();
  unseen();
  const words = asked(false);
  try {
    const told = await ask("POST", "admin/v1/objective", words);
    if (JSON.stringify(asked(false)) !== JSON.stringify(words)) return;
    effect(told);
    find("objective-apply").disabled = told.changes.length === 0;
  } catch (error) {
    wrong(find("objective-wrong"), error);
  }
});
find("objective-apply").addEventListener("click", async ({ currentTarget }) => {
  currentTarget.disabled = true;
  try {
    const { changes, until_reload } = await ask("POST", "admin/v1/objective", asked(true));
    objective.close();
    const kept = until_reload.map((was) => `The next reload brings back ${was}, unless the file is changed too.`);
    await tell("The new objective is in force", [...changes.map(changed), ...kept]);
  } catch (error) {
    wrong(find("objective-wrong"), error);
  }
});

// Jobs.

// A command line as words: blanks part them, quotes keep them together. No shell ever reads it.
export function words(line) {
  if (/["']/.test(line.replace(/"[^"]*"|'[^']*'/g, ""))) throw new Error("A quote is not closed.");
  const found = line.match(/(?:[^\s"']|"[^"]*"|'[^']*')+/g) ?? [];
  return found.map((word) => word.replace(/"([^"]*)"|'([^']*)'/g, "$1$2"));
}

find("job-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [button, place] = [find("job-submit"), find("job-wrong")];
  place.hidden = true;
  button.disabled = true;
  try {
    const tenant = find("job-tenant").value || undefined;
    const job = await ask("POST", "admin/v1/jobs", { argv: words(find("job-line").value), slices: find("job-slices").value, tenant });
    find("job-told").textContent = `Job ${job.id} is ${job.state}.`;
    find("job-line").value = "";
  } catch (error) {
    find("job-told").textContent = "";
    wrong(place, error);
  } finally {
    button.disabled = false;
  }
});

export async function cancelJob(button, { id, name }) {
  find("cancel-title").textContent = `Cancel job ${id}, ${name}?`;
  if ((await answer(find("ask-cancel"))) !== "cancel-job") return;
  await act(button, () => ask("DELETE", `admin/v1/jobs/${id}`));
}
