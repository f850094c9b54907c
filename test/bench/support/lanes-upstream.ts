import { startUpstreams } from "../../support/upstreams.js";
import { StarWorld } from "./lanes-shared.js";

const { usersAddress, postsAddress } = await startUpstreams(new StarWorld(Number(process.argv[2])));
process.send?.({ usersAddress, postsAddress });
process.once("disconnect", () => process.exit());
