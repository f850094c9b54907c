import { createProgress, toTerminal } from "../../cli/terminal.js";
import { oneLine } from "../../kernel/errors.js";
import { Closers } from "../../roles/closers.js";
import { VERSION } from "../../roles/version.js";
import { openSandbox } from "../sandbox.js";
import { setStage } from "./stage.js";
import { STEPS } from "./steps.js";

const FOLLOWERS = 2_000;

/** Shows the main job on a system of its own and checks each step; resolves to the exit code. */
export async function demo(): Promise<number> {
  const closers = new Closers();
  const progress = createProgress();
  const interrupted = (): void => void closers.closeAll(toTerminal).then(() => process.exit(130));
  process.once("SIGINT", interrupted);
  process.once("SIGTERM", interrupted);
  try {
    const sandbox = await openSandbox({
      closers,
      bigAuthorFollowers: FOLLOWERS,
      httpPort: 0,
      grpcPort: 0,
      onProgress: progress.say,
    });
    const stage = await setStage(sandbox, closers);
    progress.end();
    const { users, follows, drops } = sandbox.seeded;
    console.log(
      `avion-timeline ${VERSION}: redis-server ${sandbox.redis.version}, nats-server ${sandbox.nats.version}, ${users} users, ${follows} follows, ${drops} drops\n`,
    );
    for (const { title, run } of STEPS) {
      progress.say(title);
      const seen = await run(stage);
      progress.end();
      console.log(`✓ ${title}\n    ${seen}`);
    }
    console.log(
      `\n${STEPS.length} of ${STEPS.length} shown. \`npm run up\` starts the same and stays up, with a page to play with.`,
    );
    return 0;
  } catch (error) {
    progress.end();
    console.error(`✗ ${oneLine(error)}`);
    return 1;
  } finally {
    await closers.closeAll(toTerminal);
  }
}
