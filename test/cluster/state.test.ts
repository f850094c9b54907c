import { describe } from "@jest/globals";
import { describeOthers } from "../support/state-suite/others.js";
import { sceneOf } from "../support/state-suite/scene.js";
import { describeTimelines } from "../support/state-suite/timelines.js";

describe.each(["a Redis Cluster", "two Redis Clusters"] as const)("the state on %s", (name) => {
  const scene = sceneOf(name);
  describeTimelines(scene);
  describeOthers(scene);
});
