import { writeFileSync } from "node:fs";
import { ANALYSES } from "./analyses.js";
import { BROKERS } from "./brokers.js";
import { dashboardOf } from "./build.js";
import { OVERVIEW } from "./overview.js";
import { PIPELINE } from "./pipeline.js";
import { READ } from "./reads.js";
import { STREAMS } from "./streams.js";
import { USERS_AND_POSTS } from "./users-and-posts.js";

export const FOLDER = "charts/avion-timeline/dashboards";

/** The dashboards of the chart. */
const BOARDS = [OVERVIEW, PIPELINE, READ, STREAMS, BROKERS, USERS_AND_POSTS, ANALYSES];

/** The files of FOLDER: names and texts. */
export const dashboardFiles = (): [name: string, text: string][] =>
  BOARDS.map((board) => [`${board.name}.json`, `${JSON.stringify(dashboardOf(board), null, 2)}\n`]);

if (process.argv[1] === import.meta.filename)
  for (const [name, text] of dashboardFiles()) writeFileSync(`${FOLDER}/${name}`, text);
