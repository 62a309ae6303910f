// The page. Everything that comes from messages is put in by `textContent`; addresses are made with `encodeURIComponent`.
import { diagram, spark, steps } from "./life.js";

/** How often it asks anew, in milliseconds, while it is seen. */
const EVERY = 5000;
/** Dead letters of a page; one more is asked for, to see whether there are more. */
const PAGE = 50;
const API = new URL("api/", document.baseURI);

const byId = (id) => document.getElementById(id);
const state = { about: null, token: "", by: "", turn: 0, asking: null };

/** An element with attributes and what is in it; texts become text. */
function el(name, attributes = {}, ...inside) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick" || key === "onsubmit") element.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  for (const part of inside.flat()) if (part !== null && part !== undefined && part !== false) element.append(part instanceof Node ? part : document.createTextNode(String(part)));
  return element;
}

class Wrong extends Error {
  constructor(status, error, remedy) { super(error); this.status = status; this.remedy = remedy; }
}

/** Numbers of others' messages stay as they are written: 100.00, or one that has more digits than a number here. */
const asWritten = (_, value, about) => typeof value === "number" && JSON.rawJSON && about && String(value) !== about.source ? JSON.rawJSON(about.source) : value;

async function ask(path, words = {}, body) {
  const url = new URL(path, API);
  for (const [key, value] of Object.entries(words)) if (value !== undefined && value !== "") url.searchParams.set(key, value);
  const headers = state.token ? { Authorization: `Bearer ${state.token}` } : {};
  const how = { headers, cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(40000) };
  if (body) Object.assign(how, { method: "POST", body: JSON.stringify(body), headers: { ...headers, "Content-Type": "application/json" } });
  let response;
  try { response = await fetch(url, how); } catch { throw new Wrong(0, "the page's server does not answer", "look whether `hapax page`, or your program, still runs; it is asked again"); }
  let answer = null;
  try { answer = JSON.parse(await response.text(), asWritten); } catch { answer = {}; }
  if (!response.ok) throw new Wrong(response.status, answer.error ?? `the server answers with ${response.status}`, answer.remedy ?? "look at its log");
  return answer;
}

const UNITS = [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]];
function span(ms) {
  if (ms === null || ms === undefined) return "–";
  const unit = UNITS.find(([size]) => ms >= size);
  return unit ? `${Math.floor(ms / unit[0])} ${unit[1]}` : `${ms} ms`;
}
const count = (of) => (of.at_least ? "at least " : "") + of.number.toLocaleString("en");
const isUnknown = (answer) => answer !== null && typeof answer === "object" && answer.unknown !== undefined;
const unknown = (answer) => el("span", { class: "unknown" }, `not known: ${answer.unknown}`);
const of = (answer, show) => (isUnknown(answer) ? unknown(answer) : show(answer));
const segment = (text) => encodeURIComponent(text);
const toMessage = (id) => el("a", { href: `#/message/${segment(id)}` }, id);

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.map(([name, value]) => el("div", { class: value instanceof Element && value.className === "unknown" ? "wide" : null }, el("dt", {}, name), el("dd", {}, value))));
}

function table(caption, heads, rows) {
  const cells = (row) => row.map((cell, index) => {
    const [name, kind] = heads[index];
    return el("td", { class: kind ?? null, "data-name": name }, cell);
  });
  return el("div", { class: "scroll" }, el("table", { class: "stack", "aria-label": caption },
    el("thead", {}, el("tr", {}, heads.map(([name, kind]) => el("th", { scope: "col", class: kind === "number" ? kind : null }, name)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, cells(row))))));
}

// Overview

function overCounts(counts) {
  if (isUnknown(counts)) {
    const card = (name) => el("section", { class: "card" }, el("h2", {}, name), el("p", { class: "unknown" }, "not known"), el("p", { class: "note" }, counts.unknown));
    return [card("Throughput"), card("Duplicates dropped")];
  }
  const known = counts.steps.filter((step) => !isUnknown(step.counted));
  const minute = known.filter((step) => step.ago_ms < 60000);
  const card = (name, pick) => {
    const total = counts.sagas.reduce((sum, saga) => sum + pick(saga), 0);
    const rate = minute.length ? minute.reduce((sum, step) => sum + pick(step.counted), 0) / (minute.length * counts.step_ms / 1000) : null;
    const digits = rate !== null && rate < 10 ? 1 : 0;
    return el("section", { class: "card" }, el("h2", {}, name),
      el("p", { class: "big" }, rate === null ? "–" : rate.toLocaleString("en", { maximumFractionDigits: digits }), el("small", {}, " per second")),
      spark(counts.steps, pick, name),
      el("p", { class: "note" }, `in the last minute; the line is ten minutes; ${total.toLocaleString("en")} since the processes began`));
  };
  const silent = counts.processes.filter((process) => process.error);
  return [card("Throughput", (n) => n.handled), card("Duplicates dropped", (n) => n.duplicates), silent.length > 0 && el("section", { class: "card" }, el("h2", { class: "bad" }, "Processes that tell no numbers"), silent.map((process) => el("p", { class: "note" }, `${process.url}: ${process.error}`)))];
}

function sum(endpoints, pick) {
  let [number, atLeast, why] = [0, false, null];
  for (const endpoint of endpoints) {
    const part = pick(endpoint);
    if (isUnknown(part)) why = part;
    else { number += part.number; atLeast ||= part.at_least; }
  }
  return why ?? { number, at_least: atLeast };
}

function overEndpoint(endpoint, counts) {
  const counted = isUnknown(counts) ? [] : counts.sagas.filter((saga) => saga.endpoint === endpoint.endpoint);
  const letters = of(endpoint.dead_letters, (n) => (n.number > 0 ? el("a", { class: "bad", href: `#/dead-letters?endpoint=${segment(endpoint.endpoint)}` }, count(n)) : "0"));
  const card = el("section", { class: "card" }, el("h2", {}, "Endpoint ", el("code", {}, endpoint.endpoint)),
    facts([
      ["In the queue", of(endpoint.queue, (queue) => count(queue.messages))],
      ...(isUnknown(endpoint.queue) ? [] : [["Under a lease", of(endpoint.queue.leased, count)]]),
      ["Dead letters", letters],
      ["In the schedule", of(endpoint.schedule, (schedule) => `${count(schedule.messages)}${schedule.next_in_ms === null ? "" : `, next in ${span(schedule.next_in_ms)}`}`)],
      ...(isUnknown(endpoint.schedule) ? [] : [["Overdue", `${count(endpoint.schedule.overdue)}${endpoint.schedule.overdue_for_ms === null ? "" : `, for ${span(endpoint.schedule.overdue_for_ms)}`}`]]),
    ]));
  const sagas = endpoint.sagas;
  if (isUnknown(sagas)) card.append(el("p", {}, unknown(sagas)));
  else if (sagas.length > 0) {
    const number = (saga, name) => {
      const found = counted.find((other) => other.saga === saga.saga);
      return isUnknown(counts) ? "not known" : (found?.[name] ?? 0).toLocaleString("en");
    };
    card.append(table(`Sagas of ${endpoint.endpoint}`, [["Saga", "id"], ["Waiting entities", "number"], ["Entries", "number"], ["Oldest", "number"], ["Handled", "number"], ["Duplicates", "number"]],
      sagas.map((saga) => [saga.saga, count(saga.waiting), saga.entries.toLocaleString("en"), span(saga.oldest_ms), number(saga, "handled"), number(saga, "duplicates")])));
  }
  return card;
}

async function overview() {
  const [status, counts] = await Promise.all([ask("status"), ask("counts")]);
  byId("store").textContent = `· ${status.store}`;
  const parts = [el("h1", {}, "Overview")];
  const [throughput, duplicates, silent] = overCounts(counts);
  const cards = [throughput, duplicates];
  if (!isUnknown(status.endpoints)) {
    const endpoints = status.endpoints;
    const sagas = endpoints.flatMap((endpoint) => (isUnknown(endpoint.sagas) ? [] : endpoint.sagas));
    const oldest = sagas.reduce((most, saga) => (saga.oldest_ms === null ? most : Math.max(most ?? 0, saga.oldest_ms)), null);
    const waiting = sum(sagas, (saga) => saga.waiting);
    const letters = sum(endpoints, (endpoint) => endpoint.dead_letters);
    const queued = sum(endpoints, (endpoint) => (isUnknown(endpoint.queue) ? endpoint.queue : endpoint.queue.messages));
    const partly = endpoints.find((endpoint) => isUnknown(endpoint.sagas));
    cards.push(el("section", { class: "card" }, el("h2", {}, "Backlog"),
      partly ? el("p", {}, unknown(partly.sagas)) : el("p", { class: "big" }, count(waiting), el("small", {}, " entities wait to send")),
      el("p", { class: "note" }, oldest === null ? "nothing is old" : `oldest: ${span(oldest)}`),
      el("p", { class: "note" }, isUnknown(queued) ? unknown(queued) : `${count(queued)} messages in queues`)));
    cards.push(el("section", { class: "card" }, el("h2", {}, "Dead letters"),
      isUnknown(letters) ? el("p", {}, unknown(letters)) : el("p", { class: letters.number > 0 ? "big bad" : "big" }, count(letters)),
      el("p", { class: "note" }, el("a", { href: "#/dead-letters" }, "Look at them"))));
  }
  cards.push(el("section", { class: "card" }, el("h2", {}, "Dedup entries"), of(status.dedup, (dedup) => el("div", {},
    el("p", { class: "big" }, count(dedup.entries)),
    el("p", { class: "note" }, dedup.oldest_at_most_ms === null ? "" : `none older than ${span(dedup.oldest_at_most_ms)}`),
    el("p", { class: "note" }, dedup.retention_ms === null ? "kept as long as an endpoint asks for" : `kept for ${span(dedup.retention_ms)}`)))));
  cards.push(silent);
  parts.push(el("div", { class: "cards" }, cards));
  if (isUnknown(status.endpoints)) parts.push(el("p", { class: "card" }, unknown(status.endpoints)));
  else if (status.endpoints.length === 0) parts.push(el("p", { class: "card" }, "No endpoint has left anything in this store."));
  else parts.push(...status.endpoints.map((endpoint) => overEndpoint(endpoint, counts)));
  for (const outbox of status.outboxes) {
    parts.push(el("section", { class: "card" }, el("h2", {}, "Outbox ", el("code", {}, outbox.table)), facts([
      ["Waiting", outbox.waiting.toLocaleString("en")], ["With a relay", outbox.claimed.toLocaleString("en")], ["Oldest", span(outbox.oldest_ms)],
      ["Could have been sent for", span(outbox.lag_ms)], ["Failed", outbox.failed.toLocaleString("en")], ["Relays", outbox.relays.toLocaleString("en")]])));
  }
  return parts;
}

// Dead letters

const FIELDS = [["endpoint", "Endpoint"], ["saga", "Saga"], ["type", "Type"], ["reason", "Reason holds"], ["id", "Message id"]];

function confirmed(title, text, word, danger) {
  const dialog = byId("ask");
  byId("ask-title").textContent = title;
  byId("ask-text").textContent = text;
  const yes = byId("ask-yes");
  yes.textContent = word;
  yes.className = danger ? "strong danger" : "strong";
  return new Promise((resolve) => {
    const end = (answer) => { yes.onclick = byId("ask-no").onclick = dialog.onclose = null; dialog.close(); resolve(answer); };
    yes.onclick = () => end(true);
    byId("ask-no").onclick = () => end(false);
    dialog.onclose = () => end(false);
    dialog.showModal();
    byId("ask-no").focus();
  });
}

function say(text) { byId("said").textContent = text; clearTimeout(say.timer); say.timer = setTimeout(() => { byId("said").textContent = ""; }, 8000); }

function deeds(letter) {
  if (!state.about.actions) return null;
  const act = async (deed) => {
    if (!state.token) { say("Give the token first, above."); byId("token").focus(); return; }
    const [id, where] = [letter.message.message_id, `endpoint ${letter.endpoint}${letter.saga ? `, saga ${letter.saga}` : ""}`];
    // As the command does: what was put into a store of bodies is let go of by nobody else.
    const body = letter.message.headers?.["body-in"] === undefined ? "" : " Its body stays in its store for ever, for only the endpoint's own program lets go of it.";
    const yes = deed === "retry"
      ? await confirmed("Retry", `Send message ${id} of ${where} again, under its own id? What of it has taken effect is recognised.`, "Retry", false)
      : await confirmed("Discard", `Give message ${id} of ${where} up for good?${body}`, "Discard", true);
    if (!yes) return;
    try {
      const done = await ask(`dead-letters/${segment(letter.endpoint)}/${segment(id)}/${deed}`, {}, { saga: letter.saga ?? "", destination: letter.destination ?? "", fingerprint: letter.fingerprint, by: state.by });
      if (deed === "discard") say(`${done.discarded} discarded.`);
      else say(`${done.done} sent again, ${done.left} left.${done.reasons.map((left) => ` ${left.message_id}: ${left.reason}`).join("")}`);
    } catch (error) { say(`Not done: ${error.message}. ${error.remedy ?? ""}`); }
    draw();
  };
  return el("div", { class: "buttons" }, el("button", { type: "button", onclick: () => act("retry") }, "Retry"), el("button", { type: "button", class: "danger", onclick: () => act("discard") }, "Discard"));
}

async function deadLetters(words) {
  const skip = Math.max(0, Number.parseInt(words.get("skip") ?? "0", 10) || 0);
  const asked = Object.fromEntries(FIELDS.map(([name]) => [name, words.get(name) ?? ""]));
  const letters = await ask("dead-letters", { ...asked, skip, limit: PAGE + 1 });
  const go = (more) => {
    const to = new URLSearchParams(Object.entries({ ...asked, ...more }).filter(([, value]) => value !== "" && value !== 0).map(([key, value]) => [key, String(value)]));
    return `#/dead-letters${to.size ? `?${to}` : ""}`;
  };
  const search = el("form", { class: "search card", role: "search", onsubmit: (event) => {
    event.preventDefault();
    location.hash = go(Object.fromEntries(FIELDS.map(([name]) => [name, search.elements[name].value.trim()])));
  } }, FIELDS.map(([name, label]) => el("label", {}, label, el("input", { name, value: asked[name], autocomplete: "off", spellcheck: "false" }))), el("button", { type: "submit" }, "Search"));
  const heads = [["Set aside", "when"], ["Endpoint"], ["Saga", "id"], ["Message", "id"], ["Type", "type"], ["Attempts", "number"], ["Reason", "why"], ...(state.about.actions ? [["Action", "do"]] : [])];
  const rows = letters.slice(0, PAGE).map((letter) => [
    letter.time.replace("T", " ").replace(/\.\d+Z$/, "Z"), letter.endpoint, letter.saga ?? (letter.destination ? `to ${letter.destination}` : "–"), toMessage(letter.message.message_id),
    letter.message.message_type, letter.attempts, letter.reason.split("\n")[0], ...(state.about.actions ? [deeds(letter)] : [])]);
  const pages = el("p", { class: "buttons more" },
    skip > 0 && el("a", { href: go({ skip: Math.max(0, skip - PAGE) }) }, "← Before"),
    rows.length > 0 && el("span", { class: "note" }, `${skip + 1} to ${skip + rows.length}`),
    letters.length > PAGE && el("a", { href: go({ skip: skip + PAGE }) }, "Next →"));
  return [el("h1", {}, "Dead letters"), search, el("section", { class: "card" }, rows.length > 0 ? table("Dead letters, oldest first", heads, rows) : el("p", {}, "No dead letters that are as asked for."), pages)];
}

// What waits

async function outbox() {
  const listed = await ask("outbox", { limit: 200 });
  const entities = of(listed.entities, (all) => (all.length === 0 ? el("p", {}, "Nothing waits in entities.") : table("What waits in entities",
    [["Endpoint"], ["Saga", "id"], ["Key", "id"], ["Waits for", "number"], ["To", "type"], ["Type", "type"], ["Message", "id"]],
    all.flatMap((entity) => entity.entries.flatMap((entry) => {
      const head = [entity.endpoint, entity.saga, entity.key, span(entry.age_ms)];
      if (entry.over || entry.outgoing.length === 0) return [[...head, "–", "–", "all sent, not cleaned up yet"]];
      return entry.outgoing.map((out) => [...head, out.destination, out.message_type, toMessage(out.message_id)]);
    })))));
  const rows = listed.rows.length === 0 ? el("p", {}, "Nothing waits in outbox tables, and nothing has failed there.") : table("Rows of outbox tables",
    [["Table", "id"], ["Status"], ["Attempts", "number"], ["Stored"], ["Message", "id"], ["To", "type"], ["Last error", "why"]],
    listed.rows.map((row) => [row.table, row.status, row.attempts, row.stored, toMessage(row.message_id), row.message?.destination ?? row.unreadable ?? "–", row.last_error ?? "–"]));
  return [el("h1", {}, "What waits to be sent"), el("section", { class: "card" }, el("h2", {}, "In entities"), entities), el("section", { class: "card" }, el("h2", {}, "In outbox tables"), rows)];
}

// A message

async function message(words, id) {
  const search = el("form", { class: "search card", role: "search", onsubmit: (event) => {
    event.preventDefault();
    const asked = search.elements.id.value.trim();
    if (asked) location.hash = `#/message/${segment(asked)}`;
  } }, el("label", {}, "Message id", el("input", { name: "id", value: id, autocomplete: "off", spellcheck: "false" })), el("button", { type: "submit" }, "Find"));
  const parts = [el("h1", {}, "Where is that message?"), search];
  if (!id) return parts;
  let life;
  try { life = await ask(`message/${segment(id)}`); } catch (error) {
    if (error.status !== 404) throw error;
    return [...parts, el("section", { class: "card" }, el("p", {}, error.message), el("p", { class: "note" }, error.remedy))];
  }
  const { list, unknown: unsaid } = steps(life);
  parts.push(el("section", { class: "card" }, el("h2", {}, "Message ", el("code", {}, life.message_id)),
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Sequence diagram" }, diagram(list)),
    el("p", { class: "legend" }, el("span", {}, "— has happened"), el("span", { class: "unknown" }, "- - not yet"), el("span", { class: "bad" }, "— to look at")),
    el("ol", { class: "life" }, list.map((step) => el("li", { class: step.kind === "wrong" ? "bad" : null }, step.full))),
    life.actions.length > 0 && [el("h3", {}, "Done by hand"), el("ul", {}, life.actions.map((action) => el("li", {}, `${action.deed.replaceAll(/[-_]/g, " ")} by ${action.by} at ${action.time}, in ${action.endpoint}`)))],
    unsaid.map((text) => el("p", { class: "unknown" }, text)),
    el("p", { class: "note" }, `${count(life.entities_asked)} entities were asked whether they have handled it. Each part is of another moment; what is over leaves no trace but a dedup entry.`)));
  for (const listed of life.dead_letters) {
    const found = await ask(`dead-letters/${segment(listed.endpoint)}/${segment(id)}`, { saga: listed.saga });
    const letter = found.find((one) => one.saga === listed.saga && one.destination === listed.destination) ?? listed;
    const about = letter.message;
    const body = about.body !== undefined ? JSON.stringify(about.body, null, 2) : about.body_text ?? about.body_hex;
    parts.push(el("section", { class: "card" }, el("h2", {}, `Dead letter of ${letter.endpoint}${letter.saga ? ` by ${letter.saga}` : ""}`),
      facts([["Type", about.message_type], ["Set aside", letter.time], ["Attempts", letter.attempts], ["Body", `${about.body_bytes.toLocaleString("en")} bytes${body === undefined ? ", not shown" : ""}`],
        ...[["correlation_id", "Correlation"], ["causation_id", "Causation"], ["occurred_at", "Occurred"], ["expires", "Expires"]].filter(([key]) => about[key]).map(([key, name]) => [name, about[key]]),
        ...Object.entries(about.headers).map(([name, value]) => [`header ${name}`, value])]),
      el("h3", {}, "Reason"), el("pre", { tabindex: "0" }, letter.reason), body !== undefined && [el("h3", {}, "Body"), el("pre", { tabindex: "0" }, body)], el("div", { class: "more" }, deeds(letter))));
  }
  return parts;
}

// The page itself

const PAGES = { "": overview, "dead-letters": deadLetters, outbox, message };

function place() {
  const [path, words] = (location.hash.replace(/^#\/?/, "") || "").split("?", 2);
  const at = path.indexOf("/");
  let id = "";
  try { id = at < 0 ? "" : decodeURIComponent(path.slice(at + 1)); } catch { id = path.slice(at + 1); }
  return { name: at < 0 ? path : path.slice(0, at), id, words: new URLSearchParams(words ?? "") };
}

/** Nothing is drawn anew under somebody's hands. */
function isBusy() {
  const active = document.activeElement;
  return byId("ask").open || (active instanceof HTMLInputElement && byId("main").contains(active)) || (getSelection()?.type === "Range" && byId("main").contains(getSelection().anchorNode));
}

async function draw(isAlone = false) {
  const turn = ++state.turn;
  const { name, id, words } = place();
  const banner = byId("banner");
  try {
    state.about ??= await ask("page");
    byId("mode").textContent = state.about.actions ? "actions are on ·" : "read-only ·";
    byId("key").hidden = !(state.about.actions || state.about.guarded);
    byId("who").hidden = !state.about.actions;
    const parts = (await (PAGES[name] ?? overview)(words, id)).filter(Boolean);
    if (turn !== state.turn || (isAlone && isBusy())) return;
    const main = byId("main");
    const focused = main.contains(document.activeElement) ? [...main.querySelectorAll("a, button, [tabindex]")].indexOf(document.activeElement) : -1;
    main.replaceChildren(...parts);
    if (focused >= 0) main.querySelectorAll("a, button, [tabindex]")[focused]?.focus({ preventScroll: true });
    banner.hidden = true;
    byId("asked").textContent = `as of ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    if (turn !== state.turn) return;
    if (error.status === 401) { byId("key").hidden = false; if (!isAlone) byId("token").focus(); }
    banner.replaceChildren(el("p", {}, error.message), el("p", {}, error.remedy ?? "load the page again"));
    banner.hidden = false;
    if (!isAlone) byId("main").replaceChildren();
  }
  for (const link of document.querySelectorAll("nav a")) if (link.dataset.page === name) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  document.title = `${{ "dead-letters": "Dead letters", outbox: "Waiting", message: "Message" }[name] ?? "Overview"} · hapax`;
}

byId("key").addEventListener("submit", (event) => {
  event.preventDefault();
  state.token = byId("token").value.trim();
  state.by = byId("by").value.trim();
  byId("key-state").textContent = state.token ? "In use, in this tab's memory alone." : "Kept in this tab's memory alone.";
  draw();
});
addEventListener("hashchange", () => { draw(); byId("main").focus({ preventScroll: true }); scrollTo(0, 0); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) draw(true); });
setInterval(async () => {
  // One at a time, so that a slow store is not asked more and more.
  if (document.hidden || isBusy() || state.asking) return;
  state.asking = draw(true);
  try { await state.asking; } finally { state.asking = null; }
}, EVERY);
draw();
