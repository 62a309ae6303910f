// A message's life: what is known of it as steps, drawn as a sequence diagram, and told as a list. Texts are put in as text alone.

const SVG = "http://www.w3.org/2000/svg";
/** Who takes part, in the order in which they stand. */
const LANES = ["Sender", "Outbox", "Queue", "Endpoint", "Store", "Dedup", "Dead letters"];
const LANE_WIDTH = 132;
const HEAD = 34;
const ROW = 46;

/** The answer of a part, or none; why it is not known goes to `unknown`. */
function known(part, name, unknown) {
  if (Array.isArray(part)) return part;
  if (part && part.unknown !== undefined) unknown.push(`${name}: not known here: ${part.unknown}`);
  return [];
}

const many = (count, one, more) => `${count} ${count === 1 ? one : more}`;

/** Steps of a life: from whom to whom, what in short, what in full; `open` what has not happened yet, `wrong` what somebody should look at. */
export function steps(life) {
  const unknown = [];
  const list = [];
  const add = (from, to, short, full, kind = "") => list.push({ from, to, short, full, kind });
  for (const row of life.outbox_rows) {
    const to = row.message ? ` for ${row.message.destination}` : "";
    add("Sender", "Outbox", "stored to be sent", `Stored in ${row.table} at ${row.stored}${to}${row.archived ? "; it is in the archive" : ""}.`);
    const tried = many(row.attempts, "attempt", "attempts");
    if (row.status === "sent") add("Outbox", "Queue", "relayed", `Sent by the relay${row.ended ? ` at ${row.ended}` : ""}, after ${tried}.`);
    else if (row.status === "waits") add("Outbox", "Queue", "not yet", `Waits for the relay, after ${tried}${row.last_error ? `: ${row.last_error}` : ""}.`, "open");
    else add("Outbox", "Queue", row.status, `The row is "${row.status}"${row.ended ? ` since ${row.ended}` : ""}, after ${tried}${row.last_error ? `: ${row.last_error}` : ""}.`, "wrong");
  }
  for (const sent of life.sent_by) {
    const who = `${sent.endpoint}/${sent.saga}/${sent.key}`;
    add("Sender", "Outbox", "saved with the state", `Sent by ${who}, saved at ${sent.entry.saved} in the outbox of its entity.`);
    add("Outbox", "Queue", sent.entry.over ? "sent" : "not yet", sent.entry.over ? "It is sent; the entry is not cleaned up yet." : "It waits to be sent: by its endpoint, or by the sweeper.", sent.entry.over ? "" : "open");
  }
  for (const copy of known(life.scheduled, "schedule", unknown)) {
    add("Sender", "Queue", `due ${copy.due}`, `In the schedule of ${copy.endpoint}, to ${copy.destination}, due at ${copy.due}.`, "open");
  }
  const handled = known(life.handled, "handled", unknown);
  const queued = known(life.queued, "queues", unknown);
  for (const copy of queued) {
    add("Sender", "Queue", "sent", `In the queue of ${copy.endpoint}, sent at ${copy.sent}.`);
    if (copy.attempts > 0) add("Queue", "Endpoint", `given ${many(copy.attempts, "time", "times")}`, `Given to ${copy.endpoint} ${many(copy.attempts, "time", "times")}${copy.leased ? `; under a lease until ${copy.available}` : `; again from ${copy.available} on`}.`);
    else add("Queue", "Endpoint", "not yet", `Not given yet; it may be from ${copy.available} on.`, "open");
  }
  for (const one of handled) {
    const who = `${one.endpoint}/${one.saga}/${one.key}`;
    if (!queued.some((copy) => copy.endpoint === one.endpoint)) add("Queue", "Endpoint", "given", `Given to ${one.endpoint}; no copy of it is left in a queue that was asked.`);
    add("Endpoint", "Store", "handled, saved", `Handled by ${who}${one.time ? `, saved at ${one.time}` : ""}: state and what it sends, in one commit${one.replied ? "; it was answered" : ""}.`);
    if (one.waits) {
      const left = one.waits.outgoing.length;
      if (one.waits.over) add("Endpoint", "Queue", "all sent", "All it caused is sent; its outbox entry is not cleaned up yet.");
      else add("Endpoint", "Queue", `${left} not sent yet`, `What it sends waits, ${many(left, "message", "messages")}: ${one.waits.outgoing.map((out) => `${out.message_type} to ${out.destination} (${out.message_id})`).join(", ")}.`, "open");
    }
    if (one.remembered) add("Endpoint", "Dedup", "remembered", `All it caused is sent, and it is remembered: a copy of it changes nothing any more.${one.attempt ? ` Attempt ${one.attempt}.` : ""}`);
    else add("Endpoint", "Dedup", "not yet", "It has no dedup entry yet: that comes when all it caused is sent. Until then the outbox entry recognises a copy.", "open");
  }
  for (const letter of life.dead_letters) {
    const who = letter.saga ? ` by ${letter.saga}` : letter.destination ? ` on its way to ${letter.destination}` : "";
    if (!letter.destination && !queued.some((copy) => copy.endpoint === letter.endpoint)) add("Queue", "Endpoint", `given ${many(letter.attempts, "time", "times")}`, `Given to ${letter.endpoint} ${many(letter.attempts, "time", "times")}.`);
    add("Endpoint", "Dead letters", "set aside", `Set aside by ${letter.endpoint}${who} at ${letter.time}, after ${many(letter.attempts, "attempt", "attempts")}: ${letter.reason}`, "wrong");
  }
  return { list, unknown };
}

function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** The diagram; the list beside it says the same, and more, for who does not see it. */
export function diagram(list) {
  const lanes = LANES.filter((lane) => list.some((step) => step.from === lane || step.to === lane));
  const at = (lane) => lanes.indexOf(lane) * LANE_WIDTH + LANE_WIDTH / 2;
  const width = lanes.length * LANE_WIDTH;
  const height = HEAD + 14 + list.length * ROW + 10;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Sequence diagram of ${many(list.length, "step", "steps")}; the list below says the same` });
  for (const lane of lanes) {
    svg.append(shape("line", { class: "lane", x1: at(lane), x2: at(lane), y1: HEAD, y2: height - 4 }));
    svg.append(shape("rect", { class: "head", x: at(lane) - LANE_WIDTH / 2 + 5, y: 2, width: LANE_WIDTH - 10, height: HEAD - 6, rx: 6 }));
    svg.append(shape("text", { class: "head-text", x: at(lane), y: HEAD / 2 + 4 }, lane));
  }
  list.forEach((step, index) => {
    const y = HEAD + 14 + index * ROW + 26;
    const [from, to] = [at(step.from), at(step.to)];
    const back = to < from ? 1 : -1;
    const group = shape("g", { class: step.kind });
    group.append(shape("title", {}, step.full));
    group.append(shape("line", { class: "arrow", x1: from, y1: y, x2: to + back * 9, y2: y }));
    group.append(shape("path", { class: "tip", d: `M${to} ${y}l${back * 10} -5v10z` }));
    const label = step.short.length > 26 ? `${step.short.slice(0, 25)}…` : step.short;
    group.append(shape("text", { class: "label", x: (from + to) / 2, y: y - 8 }, `${index + 1}. ${label}`));
    svg.append(group);
  });
  return svg;
}

/** What was counted in each step of a history, as a line; what is not known is a grey field. */
export function spark(steps, pick, name) {
  const [width, height] = [240, 44];
  const values = steps.map((step) => (step.counted.unknown === undefined ? pick(step.counted) : null));
  const most = Math.max(1, ...values.map((value) => value ?? 0));
  const x = (index) => (index / Math.max(1, values.length - 1)) * width;
  const y = (value) => height - 2 - (value / most) * (height - 6);
  const svg = shape("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${name}, the last ten minutes; at most ${most} in 5 s` });
  let run = [];
  const flush = () => {
    if (run.length > 0) {
      const line = run.map(([px, py], index) => `${index ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join("");
      svg.append(shape("path", { class: "area", d: `${line}L${run.at(-1)[0].toFixed(1)} ${height}L${run[0][0].toFixed(1)} ${height}Z` }), shape("path", { d: line }));
    }
    run = [];
  };
  values.forEach((value, index) => {
    if (value === null) {
      flush();
      svg.append(shape("rect", { class: "gap", x: x(index) - 1, y: height - 4, width: Math.max(2, width / values.length), height: 4 }));
    } else run.push([x(index), y(value)]);
  });
  flush();
  return svg;
}
