import type { EditDropRequest, EditDropResponse } from "../gen/avion/posts.js";
import { AppError, invalid } from "../kernel/errors.js";
import { readId } from "../kernel/fields.js";
import { findDrop, type PostsDeps } from "./deps.js";
import { presentDetails } from "./present.js";
import { readDropId, readTexts, readWholeNumber } from "./request.js";

export const editDrop =
  (deps: PostsDeps) =>
  async (request: EditDropRequest): Promise<EditDropResponse> => {
    const edit = {
      dropId: readDropId("drop_id", request.drop_id),
      userId: readId("user_id", request.user_id),
      expectedRevision: readWholeNumber("expected_revision", request.expected_revision),
      ...readTexts(request, deps.limits),
    };
    const edited = await deps.store.drops.edit(edit);
    if (edited === undefined) throw await refusalReason(deps, edit);
    deps.observe.changed("edited");
    return { drop: presentDetails(edited) };
  };

async function refusalReason(
  deps: PostsDeps,
  edit: { readonly dropId: string; readonly userId: string },
): Promise<AppError> {
  const drop = await findDrop(deps, edit.dropId);
  if (drop.userId !== edit.userId) return invalid("user_id", "is not the author");
  if (drop.deletedAt !== null) return new AppError("conflict", "drop_id: the drop is deleted");
  return new AppError("conflict", `expected_revision: the drop is at revision ${drop.revision}`);
}
