import { describe } from "@jest/globals";
import { describeOthers } from "../support/state-suite/others.js";
import { sceneOf } from "../support/state-suite/scene.js";
import { describeTimelines } from "../support/state-suite/timelines.js";

describe("the state on one server", () => {
  const scene = sceneOf("one server");
  describeTimelines(scene);
  describeOthers(scene);
});
