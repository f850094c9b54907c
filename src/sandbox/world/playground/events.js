/**
 * Reads the event stream of a token's user until it ends. An EventSource sends no token but the cookie, which all tabs
 * of a browser share, whoever each of them shows.
 */
export async function readEvents({ token, after, signal, opened, received }) {
  const headers = { authorization: `Bearer ${token}`, ...(after === "" ? {} : { "last-event-id": after }) };
  const response = await fetch("/events/timeline/home", { headers, signal, cache: "no-store" });
  if (!response.ok) throw new Error(`status ${response.status}`);
  opened();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const blocks = (text + part.value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) received(fieldsOf(block));
  }
}

const fieldsOf = (block) => Object.fromEntries(block.split("\n").map((line) => line.split(/: ?(.*)/s, 2)));

const MAX_LOG_ROWS = 200;

/** Returns the function that writes texts into a new first row of a table, beside the time. */
export const createLog =
  (table) =>
  (...texts) => {
    const row = table.insertRow(0);
    for (const text of [new Date().toLocaleTimeString(), ...texts]) row.insertCell().textContent = text;
    while (table.rows.length > MAX_LOG_ROWS) table.deleteRow(-1);
  };
