//! Tables of `pg_catalog` that never have rows, since there are no such things here.

use crate::tables::Table;

pub(crate) const TABLES: &[Table] = &[
    Table(
        "pg_collation",
        "oid:o collname:s collnamespace:o collowner:o collprovider:s collisdeterministic:b collencoding:i collcollate:s \
         collctype:s colliculocale:s collversion:s",
        None,
    ),
    Table(
        "pg_matviews",
        "schemaname:s matviewname:s matviewowner:s tablespace:s hasindexes:b ispopulated:b definition:s",
        None,
    ),
    Table("pg_auth_members", "roleid:o member:o grantor:o admin_option:b", None),
    Table("pg_db_role_setting", "setdatabase:o setrole:o setconfig:S", None),
    Table("pg_attrdef", "oid:o adrelid:o adnum:h adbin:s", None),
    Table("pg_description", "objoid:o classoid:o objsubid:i description:s", None),
    Table("pg_shdescription", "objoid:o classoid:o description:s", None),
    Table("pg_depend", "classid:o objid:o objsubid:i refclassid:o refobjid:o refobjsubid:i deptype:s", None),
    Table("pg_shdepend", "dbid:o classid:o objid:o objsubid:i refclassid:o refobjid:o deptype:s", None),
    Table(
        "pg_index",
        "indexrelid:o indrelid:o indnatts:h indnkeyatts:h indisunique:b indnullsnotdistinct:b indisprimary:b indisexclusion:b \
         indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b indisreplident:b indkey:O \
         indcollation:O indclass:O indoption:O indexprs:s indpred:s",
        None,
    ),
    Table("pg_indexes", "schemaname:s tablename:s indexname:s tablespace:s indexdef:s", None),
    Table(
        "pg_constraint",
        "oid:o conname:s connamespace:o contype:s condeferrable:b condeferred:b convalidated:b conrelid:o contypid:o conindid:o \
         conparentid:o confrelid:o confupdtype:s confdeltype:s confmatchtype:s conislocal:b coninhcount:i connoinherit:b conkey:O \
         confkey:O conpfeqop:O conppeqop:O conffeqop:O confdelsetcols:O conexclop:O conbin:s",
        None,
    ),
    Table("pg_inherits", "inhrelid:o inhparent:o inhseqno:i inhdetachpending:b", None),
    Table("pg_partitioned_table", "partrelid:o partstrat:s partnatts:h partdefid:o partattrs:O partclass:O", None),
    Table("pg_sequence", "seqrelid:o seqtypid:o seqstart:o seqincrement:o seqmax:o seqmin:o seqcache:o seqcycle:b", None),
    Table("pg_sequences", "schemaname:s sequencename:s sequenceowner:s data_type:s start_value:o last_value:o", None),
    Table(
        "pg_trigger",
        "oid:o tgrelid:o tgparentid:o tgname:s tgfoid:o tgtype:h tgenabled:s tgisinternal:b tgconstrrelid:o tgconstrindid:o \
         tgconstraint:o tgdeferrable:b tginitdeferred:b tgnargs:h tgattr:O tgargs:s tgqual:s tgoldtable:s tgnewtable:s",
        None,
    ),
    Table("pg_rewrite", "oid:o rulename:s ev_class:o ev_type:s ev_enabled:s is_instead:b ev_qual:s ev_action:s", None),
    Table("pg_rules", "schemaname:s tablename:s rulename:s definition:s", None),
    Table("pg_policy", "oid:o polname:s polrelid:o polcmd:s polpermissive:b polroles:s polqual:s polwithcheck:s", None),
    Table(
        "pg_statistic_ext",
        "oid:o stxrelid:o stxname:s stxnamespace:o stxowner:o stxstattarget:i stxkeys:O stxkind:S stxexprs:s",
        None,
    ),
    Table(
        "pg_publication",
        "oid:o pubname:s pubowner:o puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b pubviaroot:b",
        None,
    ),
    Table("pg_publication_rel", "oid:o prpubid:o prrelid:o prqual:s prattrs:O", None),
    Table("pg_publication_namespace", "oid:o pnpubid:o pnnspid:o", None),
    Table("pg_aggregate", "aggfnoid:o aggkind:s aggnumdirectargs:h", None),
    Table(
        "pg_operator",
        "oid:o oprname:s oprnamespace:o oprowner:o oprkind:s oprcanmerge:b oprcanhash:b oprleft:o oprright:o oprresult:o \
         oprcom:o oprnegate:o oprcode:s oprrest:s oprjoin:s",
        None,
    ),
    Table(
        "pg_opclass",
        "oid:o opcmethod:o opcname:s opcnamespace:o opcowner:o opcfamily:o opcintype:o opcdefault:b opckeytype:o",
        None,
    ),
    Table("pg_opfamily", "oid:o opfmethod:o opfname:s opfnamespace:o opfowner:o", None),
    Table(
        "pg_amop",
        "oid:o amopfamily:o amoplefttype:o amoprighttype:o amopstrategy:h amoppurpose:s amopopr:o amopmethod:o amopsortfamily:o",
        None,
    ),
    Table("pg_amproc", "oid:o amprocfamily:o amproclefttype:o amprocrighttype:o amprocnum:h amproc:o", None),
    Table("pg_transform", "oid:o trftype:o trflang:o trffromsql:s trftosql:s", None),
    Table("pg_enum", "oid:o enumtypid:o enumsortorder:f enumlabel:s", None),
    Table("pg_range", "rngtypid:o rngsubtype:o rngmultitypid:o rngcollation:o rngsubopc:o", None),
    Table(
        "pg_subscription",
        "oid:o subdbid:o subskiplsn:s subname:s subowner:o subenabled:b subbinary:b substream:b subtwophasestate:s \
         subdisableonerr:b subconninfo:s subslotname:s subsynccommit:s subpublications:S",
        None,
    ),
    Table("pg_publication_tables", "pubname:s schemaname:s tablename:s attnames:S rowfilter:s", None),
    Table("pg_ts_config", "oid:o cfgname:s cfgnamespace:o cfgowner:o cfgparser:o", None),
    Table("pg_ts_dict", "oid:o dictname:s dictnamespace:o dictowner:o dicttemplate:o dictinitoption:s", None),
    Table("pg_ts_parser", "oid:o prsname:s prsnamespace:o prsstart:s prstoken:s prsend:s prsheadline:s prslextype:s", None),
    Table("pg_ts_template", "oid:o tmplname:s tmplnamespace:o tmplinit:s tmpllexize:s", None),
    Table("pg_stat_wal_receiver", "pid:i status:s", None),
    Table("pg_stat_all_indexes", INDEX_COLUMNS, None),
    Table("pg_stat_user_indexes", INDEX_COLUMNS, None),
    Table(
        "pg_stat_replication",
        "pid:i usesysid:o usename:s application_name:s client_addr:s client_hostname:s client_port:i backend_start:t state:s \
         sent_lsn:s write_lsn:s flush_lsn:s replay_lsn:s sync_priority:i sync_state:s",
        None,
    ),
    Table(
        "pg_replication_slots",
        "slot_name:s plugin:s slot_type:s datoid:o database:s temporary:b active:b active_pid:i xmin:o catalog_xmin:o \
         restart_lsn:s confirmed_flush_lsn:s wal_status:s safe_wal_size:o two_phase:b",
        None,
    ),
    Table(
        "pg_extension",
        "oid:o extname:s extowner:o extnamespace:o extrelocatable:b extversion:s extconfig:O extcondition:S",
        None,
    ),
    Table("pg_available_extensions", "name:s default_version:s installed_version:s comment:s", None),
    Table("pg_event_trigger", "oid:o evtname:s evtevent:s evtowner:o evtfoid:o evtenabled:s evttags:S", None),
    Table("pg_user_mappings", "umid:o srvid:o srvname:s umuser:o usename:s umoptions:S", None),
    Table("pg_foreign_table", "ftrelid:o ftserver:o ftoptions:S", None),
    Table("pg_foreign_server", "oid:o srvname:s srvowner:o srvfdw:o srvtype:s srvversion:s srvacl:S srvoptions:S", None),
    Table("pg_foreign_data_wrapper", "oid:o fdwname:s fdwowner:o fdwhandler:o fdwvalidator:o fdwacl:S fdwoptions:S", None),
    Table("pg_cast", "oid:o castsource:o casttarget:o castfunc:o castcontext:s castmethod:s", None),
    Table(
        "pg_conversion",
        "oid:o conname:s connamespace:o conowner:o conforencoding:i contoencoding:i conproc:s condefault:b",
        None,
    ),
    Table("pg_default_acl", "oid:o defaclrole:o defaclnamespace:o defaclobjtype:s defaclacl:S", None),
    Table("pg_seclabel", "objoid:o classoid:o objsubid:i provider:s label:s", None),
    Table("pg_largeobject_metadata", "oid:o lomowner:o lomacl:S", None),
    Table("pg_locks", "locktype:s database:o relation:o pid:i mode:s granted:b", None),
    // Functions that give rows for what there is none of.
    Table("pg_partition_tree", "relid:o parentrelid:o isleaf:b level:i", None),
    Table("pg_partition_ancestors", "relid:o", None),
    Table("pg_parameter_acl", "oid:o parname:s paracl:S", None),
    Table("pg_init_privs", "objoid:o classoid:o objsubid:i privtype:s initprivs:S", None),
    Table("pg_largeobject", "loid:o pageno:i data:s", None),
    Table("pg_policies", "schemaname:s tablename:s policyname:s permissive:s roles:S cmd:s qual:s with_check:s", None),
    // Roles and their passwords are the access file's, which the catalogue does not tell.
    Table(
        "pg_authid",
        "oid:o rolname:s rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b rolbypassrls:b \
         rolconnlimit:i rolpassword:s rolvaliduntil:t",
        None,
    ),
    Table("pg_group", "groname:s grosysid:o grolist:O", None),
    Table(
        "pg_shadow",
        "usename:s usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:s valuntil:t useconfig:S",
        None,
    ),
    Table("pg_timezone_abbrevs", "abbrev:s utc_offset:v is_dst:b", None),
    Table("pg_config", "name:s setting:s", None),
    Table("pg_file_settings", "sourcefile:s sourceline:i seqno:i name:s setting:s applied:b error:s", None),
    Table(
        "pg_hba_file_rules",
        "line_number:i type:s database:S user_name:S address:s netmask:s auth_method:s options:S error:s",
        None,
    ),
    Table(
        "pg_stat_bgwriter",
        "checkpoints_timed:o checkpoints_req:o checkpoint_write_time:f checkpoint_sync_time:f buffers_checkpoint:o \
         buffers_clean:o maxwritten_clean:o buffers_backend:o buffers_backend_fsync:o buffers_alloc:o stats_reset:t",
        None,
    ),
    Table("pg_stat_ssl", "pid:i ssl:b version:s cipher:s bits:i client_dn:s client_serial:s issuer_dn:s", None),
    Table("pg_statio_all_tables", BLOCK_COLUMNS, None),
    Table("pg_statio_user_tables", BLOCK_COLUMNS, None),
    Table("pg_prepared_xacts", "transaction:o gid:s prepared:s owner:s database:s", None),
];

const INDEX_COLUMNS: &str =
    "relid:o indexrelid:o schemaname:s relname:s indexrelname:s idx_scan:o idx_tup_read:o idx_tup_fetch:o";
const BLOCK_COLUMNS: &str = "relid:o schemaname:s relname:s heap_blks_read:o heap_blks_hit:o idx_blks_read:o idx_blks_hit:o \
     toast_blks_read:o toast_blks_hit:o tidx_blks_read:o tidx_blks_hit:o";
