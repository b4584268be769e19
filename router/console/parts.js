// What both halves of the console are made of: elements, numbers, the key and dialogs.

const KEY = "sluice-admin-key";
let key = sessionStorage.getItem(KEY) ?? "";

export const find = (id) => document.getElementById(id);

// Elements, made without ever reading text as markup.
export function make(tag, attributes = {}, ...children) {
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

// One child for each item, by name. Those there are stay, so that focus and clicks are not lost.
export function keep(parent, items, { name, draw, fill }) {
  const there = new Map([...parent.children].map((child) => [child.dataset.name, child]));
  items.forEach((item, place) => {
    const called = String(name(item));
    const child = there.get(called) ?? draw(item);
    child.dataset.name = called;
    there.delete(called);
    fill(child, item);
    if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
  });
  for (const gone of there.values()) gone.remove();
}

// Numbers and times as people read them.
export function rate(value) {
  return value >= 100 || value === 0 ? whole(value) : value.toFixed(1);
}

export const whole = (value) => Math.round(value).toLocaleString("en");

export function ms(value) {
  if (value >= 100 || value === 0) return span(value / 1000);
  return `${value.toFixed(value < 10 ? 2 : 1)} ms`;
}

export function bytes(value) {
  const mib = value / 2 ** 20;
  return mib >= 1024 ? `${(mib / 1024).toFixed(1)} GiB` : `${mib.toFixed(mib < 10 ? 1 : 0)} MiB`;
}

export function span(seconds) {
  const whole = Math.floor(seconds);
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (whole < 60) return `${Math.round(seconds * 10) / 10} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor(whole / 60) % 60} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

export const known = (values) => values.filter((value) => value !== null && value !== undefined);
export const percent = (share) => `${(share * 100).toFixed(2)} %`;
export const plain = (value) => String(Number(value.toFixed(6)));
export const counted = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;

export const headers = () => (key ? { authorization: `Bearer ${key}` } : {});

// A dialog's answer: the value of the button that closed it.
export function answer(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue), { once: true }));
}

// Why somebody is not let in: the router's words if a key was given, else that one is needed.
export function refused(error) {
  return key ? error : "";
}

export async function askKey(why) {
  const wrong = find("key-wrong");
  wrong.hidden = !why;
  wrong.textContent = why;
  find("key-value").value = "";
  if ((await answer(find("ask-key"))) !== "use") return false;
  key = find("key-value").value;
  sessionStorage.setItem(KEY, key);
  return true;
}

// What the router answers; its refusals are thrown, with their problems.
export async function ask(method, path, body) {
  const sent = body === undefined ? undefined : JSON.stringify(body);
  let reply;
  try {
    reply = await fetch(path, { method, headers: headers(), body: sent });
  } catch (error) {
    throw Object.assign(new Error("The router could not be asked"), { problems: [String(error)] });
  }
  const told = await reply.json();
  if (reply.ok) return told;
  const { error, problems = [] } = told;
  throw Object.assign(new Error(error), { problems });
}

// Tells what is wrong beside what it is about.
export function wrong(place, { message, problems = [] }) {
  place.textContent = problems.length ? problems.join("; ") : message;
  place.hidden = false;
}

export async function tell(title, lines) {
  find("told-title").textContent = title;
  find("told-lines").replaceChildren(...lines.map((line) => make("li", {}, line)));
  await answer(find("told"));
}

export const changed = ({ path, old, new: to }) => `${path}: ${old ?? "none"} to ${to ?? "none"}`;
