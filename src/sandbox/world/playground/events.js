const MAX_LOG_ROWS = 200;

/** Returns the function that writes texts into a new first row of a table, beside the time. */
export const createLog =
  (table) =>
  (...texts) => {
    const row = table.insertRow(0);
    for (const text of [new Date().toLocaleTimeString(), ...texts]) row.insertCell().textContent = text;
    while (table.rows.length > MAX_LOG_ROWS) table.deleteRow(-1);
  };
