import java.io.StringReader;
import java.math.BigDecimal;
import java.sql.*;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;

import org.postgresql.copy.CopyManager;
import org.postgresql.core.BaseConnection;

/** What a program with pgjdbc does to Pithead. It ends with a stack trace where something is other than expected. */
public class Jdbc {
    static final String ENDLESS = "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.value + b.value < 0";

    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + arguments[0] + "/pithead?user=me";
        try (Connection connection = DriverManager.getConnection(url)) {
            metadata(connection.getMetaData());
            prepared(connection);
            parts(connection);
            ends(connection);
            writes(connection, url);
        }
        System.out.println("done");
    }

    static void same(Object expected, Object found) {
        if (!expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static List<String> rows(ResultSet rows, String... columns) throws SQLException {
        List<String> found = new ArrayList<>();
        while (rows.next()) {
            List<String> row = new ArrayList<>();
            for (String column : columns) {
                row.add(rows.getString(column));
            }
            found.add(String.join(" ", row));
        }
        rows.close();
        return found;
    }

    static void metadata(DatabaseMetaData about) throws SQLException {
        same("PostgreSQL", about.getDatabaseProductName());
        same(List.of("pithead"), rows(about.getCatalogs(), "TABLE_CAT"));
        same(true, rows(about.getSchemas(), "TABLE_SCHEM").containsAll(List.of("lab", "main")));
        String[] kinds = {"TABLE", "VIEW"};
        same(List.of("lab notes TABLE"), rows(about.getTables(null, "lab", "%", kinds), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE"));
        same(List.of("types"), rows(about.getTables(null, null, "typ%", kinds), "TABLE_NAME"));
        List<String> columns = rows(about.getColumns(null, "main", "types", "%"), "COLUMN_NAME", "TYPE_NAME", "DATA_TYPE");
        same(List.of("small int2 5", "whole int4 4", "big int8 -5", "unsigned numeric 2", "real float4 7", "double float8 8",
            "amount numeric 2", "name text 12", "raw bytea -2", "flag bool -7", "day date 91", "moment timestamp 93",
            "zoned timestamptz 93", "list _int8 2003", "pair json 1111"), columns);
        same(List.of("12 2"), rows(about.getColumns(null, "main", "types", "amount"), "COLUMN_SIZE", "DECIMAL_DIGITS"));
        same(true, rows(about.getTypeInfo(), "TYPE_NAME").containsAll(List.of("bool", "int8", "numeric", "timestamptz", "_text")));
        same(true, about.getSQLKeywords().contains("ilike"));
        same(List.of(), rows(about.getPrimaryKeys(null, "main", "types"), "COLUMN_NAME"));
        same(List.of(), rows(about.getImportedKeys(null, "main", "types"), "FKCOLUMN_NAME"));
        same(List.of(), rows(about.getExportedKeys(null, "main", "types"), "FKCOLUMN_NAME"));
        same(List.of(), rows(about.getIndexInfo(null, "main", "types", false, false), "INDEX_NAME"));
        same(List.of(), rows(about.getBestRowIdentifier(null, "main", "types", DatabaseMetaData.bestRowSession, true), "COLUMN_NAME"));
        rows(about.getVersionColumns(null, "main", "types"), "COLUMN_NAME");
        rows(about.getUDTs(null, null, "%", null), "TYPE_NAME");
        rows(about.getFunctions(null, null, "%"), "FUNCTION_NAME");
        rows(about.getProcedureColumns(null, null, "%", "%"), "PROCEDURE_NAME");
    }

    /** Eight times: after five the driver prepares by name, and takes values in binary. */
    static void prepared(Connection connection) throws SQLException {
        String sql = "SELECT * FROM types WHERE big = ? AND name LIKE ? AND day >= ? AND amount = ? AND flag = ? AND moment = ?";
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int round = 0; round < 8; round++) {
                statement.setLong(1, 2);
                statement.setString(2, "text%");
                if (round % 2 == 0) {
                    statement.setDate(3, Date.valueOf("2024-03-01"));
                    statement.setTimestamp(6, Timestamp.valueOf("2024-02-29 01:02:03.5"));
                } else {
                    statement.setObject(3, LocalDate.of(2024, 3, 1));
                    statement.setObject(6, LocalDateTime.of(2024, 2, 29, 1, 2, 3, 500_000_000));
                }
                statement.setBigDecimal(4, new BigDecimal("2.50"));
                statement.setBoolean(5, true);
                ResultSet row = statement.executeQuery();
                same(true, row.next());
                same(2, row.getInt("small"));
                same(new BigDecimal("2.50"), row.getBigDecimal("amount"));
                same("text 2", row.getString("name"));
                same("bytes", new String(row.getBytes("raw")));
                same(LocalDate.of(2024, 3, 1), row.getObject("day", LocalDate.class));
                same(LocalDateTime.of(2024, 2, 29, 1, 2, 3, 500_000_000), row.getObject("moment", LocalDateTime.class));
                same(OffsetDateTime.parse("2024-02-29T01:02:03Z"), row.getObject("zoned", OffsetDateTime.class));
                Long[] list = (Long[]) row.getArray("list").getArray();
                same(List.of(2L, 7L), List.of(list[0], list[2]));
                same("{\"a\":2,\"b\":\"x\"}", row.getString("pair"));
                same(12, row.getMetaData().getPrecision(7));
                same(2, row.getMetaData().getScale(7));
                same(false, row.next());
            }
            same("int8", statement.getParameterMetaData().getParameterTypeName(1));
        }
        try (PreparedStatement statement = connection.prepareStatement("SELECT count(*) FROM types WHERE big = ANY(?)")) {
            statement.setArray(1, connection.createArrayOf("bigint", new Object[] {1L, 3L}));
            same(List.of("2"), rows(statement.executeQuery(), "count"));
        }
    }

    static int count(ResultSet rows) throws SQLException {
        int count = 0;
        while (rows.next()) {
            count++;
        }
        return count;
    }

    static void parts(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(1000);
            same(20000, count(statement.executeQuery("SELECT id FROM items")));
            statement.setMaxRows(7);
            same(7, count(statement.executeQuery("SELECT id FROM items")));
            connection.commit();
        }
        connection.setAutoCommit(true);
        try (Statement statement = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY)) {
            ResultSet rows = statement.executeQuery("SELECT id FROM items ORDER BY id LIMIT 5");
            rows.last();
            same(4, rows.getInt(1));
        }
    }

    static String state(Statement statement, String sql) {
        try {
            statement.executeQuery(sql);
            return "no error";
        } catch (SQLException error) {
            return error.getSQLState();
        }
    }

    static void ends(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            Thread cancels = new Thread(() -> {
                try {
                    Thread.sleep(500);
                    statement.cancel();
                } catch (Exception error) {
                    throw new AssertionError(error);
                }
            });
            cancels.start();
            same("57014", state(statement, ENDLESS));
            cancels.join();
            statement.setQueryTimeout(1);
            same("57014", state(statement, ENDLESS));
            statement.setQueryTimeout(0);
            same("42703", state(statement, "SELECT nothing FROM items"));
            same("42P01", state(statement, "SELECT * FROM nothing"));
            same(true, connection.isValid(5));
            same("main", connection.getSchema());
            connection.setSchema("lab");
            same(List.of("a"), rows(statement.executeQuery("SELECT note FROM notes"), "note"));
            connection.setSchema("main");
        }
    }

    static int[] batch(Connection connection, int rows) throws SQLException {
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO jdbc VALUES (?, ?, ?, ?, ?)")) {
            for (int row = 0; row < rows; row++) {
                insert.setLong(1, row);
                insert.setString(2, row % 3 == 0 ? null : "it's " + row);
                insert.setDate(3, Date.valueOf("2024-02-29"));
                insert.setBigDecimal(4, new BigDecimal("1.25"));
                insert.setTimestamp(5, Timestamp.valueOf("2024-02-29 12:00:00"));
                insert.addBatch();
            }
            return insert.executeBatch();
        }
    }

    static void writes(Connection connection, String url) throws Exception {
        String all = "SELECT count(*) || ' ' || count(name) || ' ' || sum(amount) || ' ' || min(day) || ' ' || max(moment) AS a FROM jdbc";
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE jdbc (id bigint, name text, day date, amount decimal(10, 2), moment timestamp)");
            same(6, batch(connection, 6).length);
            same(List.of("6 4 7.50 2024-02-29 2024-02-29T12:00:00"), rows(statement.executeQuery(all), "a"));
            try (Connection rewriting = DriverManager.getConnection(url + "&reWriteBatchedInserts=true")) {
                batch(rewriting, 1000);
            }
            same(List.of("1006"), rows(statement.executeQuery("SELECT count(*) AS a FROM jdbc"), "a"));
            same(2, statement.executeUpdate("DELETE FROM jdbc WHERE id = 5"));
            CopyManager copies = new CopyManager(connection.unwrap(BaseConnection.class));
            same(2L, copies.copyIn("COPY jdbc (id, name) FROM STDIN CSV", new StringReader("1,a\n2,b\n")));
            try (Connection blocks = DriverManager.getConnection(url)) {
                blocks.setAutoCommit(false);
                try {
                    batch(blocks, 2);
                    throw new AssertionError("a block had two statements that write");
                } catch (BatchUpdateException error) {
                    same("0A000", error.getSQLState());
                }
            }
            try (Connection blocks = DriverManager.getConnection(url + "&options=-c%20pithead.block_writes=many")) {
                blocks.setAutoCommit(false);
                same(3, batch(blocks, 3).length);
                blocks.commit();
            }
            statement.execute("DROP TABLE jdbc");
        }
    }
}
